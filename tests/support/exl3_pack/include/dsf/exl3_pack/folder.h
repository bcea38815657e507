#pragma once
// A checkpoint folder being written: shards and their index. Holds all tensors in memory until finish(); one thread.
#include <filesystem>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::exl3_pack {

class FolderWriter {
 public:
  // Makes the folder. max_shard_bytes is append()'s bound on a file. Errors: kLocal.
  static Result<FolderWriter> create(const std::filesystem::path& dir, uint64_t max_shard_bytes = UINT64_MAX);
  const std::filesystem::path& dir() const { return dir_; }

  // Into a shard of the caller's choice, numbered from 1.
  void add(int shard, std::vector<safetensors::TensorData> tensors);
  // Into the last shard, or into a new one where it would grow beyond max_shard_bytes; a tensor that is larger for
  // itself gets a shard of its own. The tensors stay together where they fit together.
  void append(std::vector<safetensors::TensorData> tensors);
  // Writes the shards and the index. Errors: kLocal.
  Result<void> finish();

 private:
  FolderWriter(std::filesystem::path dir, uint64_t max_shard_bytes)
      : dir_(std::move(dir)), max_shard_bytes_(max_shard_bytes) {}
  std::filesystem::path dir_;
  uint64_t max_shard_bytes_;
  uint64_t last_bytes_ = 0;  // of the last shard, by append()
  std::vector<std::vector<safetensors::TensorData>> shards_;
};

std::string shard_name(int shard, int n_shards);  // "model-00001-of-00006.safetensors"

}  // namespace dsf::exl3_pack
