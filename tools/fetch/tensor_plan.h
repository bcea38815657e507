#pragma once
// Which tensors of which shards a `tensors` run wants: index, headers by range, names and rows to byte ranges. Makes
// API calls and small reads only. Source: hub.md 6.1 steps 1 to 5.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/fetch/get_plan.h"

namespace dsf::fetch {

// Rows [begin, end) of one tensor along its first dimension.
struct RowRange {
  std::string tensor;
  uint64_t begin = 0, end = 0;
};
// "NAME=a:b". Errors: kUsage.
Result<RowRange> parse_rows(const std::string& text);

struct TensorSelection {
  std::vector<std::string> names, regexes;  // a regex is looked for anywhere in the name
  std::vector<RowRange> rows;
};

// A shard whose header was read. Stable address: threads share its source.
struct Shard {
  Shard(const std::string& repo, const std::string& commit, hub::Entry e, const manifest::PinFile* p)
      : entry(e), source(repo, commit, std::move(e)), pinned(p) {}
  const hub::Entry entry;
  hub::FileSource source;
  const manifest::PinFile* pinned;  // borrowed from the plan's pin; nullptr without one
  std::string header_bytes;         // length word and JSON, as they are in the file
  std::string header_sha256;
  bool header_pinned = false;  // header_sha256 was proved by the pin
  safetensors::Header header;
};

struct PickedTensor {
  const Shard* shard = nullptr;
  safetensors::TensorInfo info;  // as in the shard; shape of the rows when rows is set
  std::string rows;              // "a:b", empty for a whole tensor
  uint64_t begin = 0, end = 0;   // bytes of the shard's file
  std::string pinned_sha256;     // of the whole tensor; empty when nothing pins it
};

struct TensorPlan {
  std::vector<Planned> plans;
  std::vector<std::unique_ptr<Shard>> shards;  // in plan order, only those that are needed
  std::vector<PickedTensor> tensors;           // by shard, then offset
};

// Errors: kMissing (a name, or a regex that matches nothing), kContent (malformed index or header, pinned header digest
// differs), kUsage (bad regex, rows outside the tensor), and those of the Hub. jobs: headers read at a time.
Result<TensorPlan> plan_tensors(const SourceOptions& source, const TensorSelection& selection,
                                const std::shared_ptr<hub::Shared>& shared, int jobs);

}  // namespace dsf::fetch
