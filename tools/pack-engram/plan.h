#pragma once
// The packed files of a plan, and what became of each. Plain values.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/packed.h"
#include "dsf/engram/rows.h"
#include "tools/pack-engram/options.h"

namespace dsf::pack_engram {

// Rows read, compared, hashed and written at a time.
inline constexpr uint64_t kBlockRows = engram::kPackBlockRows;

struct PackFile {
  size_t layer_index = 0;
  int rank = 0;
  std::filesystem::path path;
  engram::PackedHeader header;
};

struct Source {
  engram::Layout layout;
  std::unique_ptr<engram::CheckpointRows> rows;
  std::string config_sha256, index_sha256;  // the latter empty without an index
  std::string identity{};                   // digest of configuration, index and the shards' states: whose parts go on
};

// What is known of one packed file after the work.
struct Outcome {
  PackFile file;
  std::string status{};  // "packed", "kept", "would_pack", "ok", or the class of what is wrong: missing magic header
                         // reserved size content
  std::string what{};    // one clause for people when something is wrong
  uint64_t rows_compared = 0, rows_differing = 0, first_bad_row = 0, rows_resumed = 0;
  std::vector<std::string> block_sha256{};  // of the record blocks, when the file was read or written whole
  double seconds = 0;
  bool good() const { return status == "packed" || status == "kept" || status == "ok" || status == "would_pack"; }
};

// Opens configuration and tables. Errors: kMissing, kUsage (configuration), kContent (tables).
Result<Source> open_source(const Plan& plan);
Result<std::vector<PackFile>> files_of(const Plan& plan, const engram::Layout& layout);

}  // namespace dsf::pack_engram
