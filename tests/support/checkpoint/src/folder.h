#pragma once
// A checkpoint folder being written: shards, their index, and the small files both forms share.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dsf/safetensors/safetensors.h"

namespace dsf::made_checkpoint {

class FolderWriter {
 public:
  // n_shards: fixed beforehand, because it stands in every file name.
  static Result<FolderWriter> create(const std::filesystem::path& dir, int n_shards);
  // Shards are numbered from 1.
  void add(int shard, std::vector<safetensors::TensorData> tensors);
  // Writes the shards and the index.
  Result<void> finish();

 private:
  FolderWriter(std::filesystem::path dir, int n_shards)
      : dir_(std::move(dir)), shards_(static_cast<size_t>(n_shards)) {}
  std::filesystem::path dir_;
  std::vector<std::vector<safetensors::TensorData>> shards_;
};

std::string shard_name(int shard, int n_shards);  // "model-00001-of-00006.safetensors"

// tokenizer.json, tokenizer_config.json, generation_config.json and the given config.json.
Result<void> write_small_files(const std::filesystem::path& dir, const std::string& config_json);

}  // namespace dsf::made_checkpoint
