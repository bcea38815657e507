#pragma once
// `dsf-fetch tensors`: named tensors (or rows of them) out of a remote checkpoint, by range, without the rest. Source:
// hub.md 6.
//
// Only a pinned tensor digest proves content; a pinned header proves names, types and places; everything else rests on
// TLS, the commit in the URL and exact lengths. The record says which it was, tensor by tensor.
#include <filesystem>
#include <memory>

#include "tools/fetch/events.h"
#include "tools/fetch/tensor_plan.h"

namespace dsf::fetch {

struct TensorsOptions : SourceOptions {
  TensorSelection selection;
  // Exactly one: a small safetensors file; a folder with one raw file a tensor; a folder with <shard>.sparse copies
  // that keep the shard's header and offsets.
  std::filesystem::path out, raw_dir, sparse_dir;
  int connections = 16;
  bool overwrite = false, allow_constant = false, dry_run = false, quiet = false;
};

// Writes the outputs and, beside them, the record: <out>.record.json, or tensors.json in the folder (schema
// "hub-tensors"). A second run with nothing to do writes nothing.
Result<int> run_tensors(const TensorsOptions& options, const std::shared_ptr<hub::Shared>& shared, Events& events);

}  // namespace dsf::fetch
