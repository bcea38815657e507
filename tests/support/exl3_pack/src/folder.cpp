#include "dsf/exl3_pack/folder.h"

#include <algorithm>
#include <cstdio>

#include "dsf/io/file.h"

namespace dsf::exl3_pack {
namespace {

constexpr uint64_t kHeaderBase = 128;   // length, metadata, padding
constexpr uint64_t kHeaderEntry = 128;  // more than a tensor's type, shape and offsets take beside its name

uint64_t file_bytes(const safetensors::TensorData& t) { return t.bytes.size() + t.name.size() + kHeaderEntry; }

uint64_t file_bytes(const std::vector<safetensors::TensorData>& tensors) {
  uint64_t sum = 0;
  for (const auto& t : tensors) sum += file_bytes(t);
  return sum;
}

}  // namespace

std::string shard_name(int shard, int n_shards) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05d-of-%05d.safetensors", shard, n_shards);
  return text;
}

Result<FolderWriter> FolderWriter::create(const std::filesystem::path& dir, uint64_t max_shard_bytes) {
  DSF_OK(io::make_dirs(dir));
  return FolderWriter(dir, max_shard_bytes);
}

void FolderWriter::add(int shard, std::vector<safetensors::TensorData> tensors) {
  shards_.resize(std::max(shards_.size(), static_cast<size_t>(shard)));
  auto& list = shards_[static_cast<size_t>(shard - 1)];
  std::move(tensors.begin(), tensors.end(), std::back_inserter(list));
}

void FolderWriter::append(std::vector<safetensors::TensorData> tensors) {
  const uint64_t bytes = file_bytes(tensors);
  if (kHeaderBase + bytes > max_shard_bytes_ && tensors.size() > 1) {
    for (auto& t : tensors) append({std::move(t)});
    return;
  }
  if (shards_.empty() || last_bytes_ + bytes > max_shard_bytes_) {
    shards_.emplace_back();
    last_bytes_ = kHeaderBase;
  }
  last_bytes_ += bytes;
  add(static_cast<int>(shards_.size()), std::move(tensors));
}

Result<void> FolderWriter::finish() {
  std::vector<safetensors::IndexEntry> entries;
  uint64_t total = 0;
  const std::pair<std::string, std::string> format[] = {{"format", "pt"}};
  for (size_t i = 0; i < shards_.size(); ++i) {
    const std::string name = shard_name(static_cast<int>(i) + 1, static_cast<int>(shards_.size()));
    DSF_OK(safetensors::write_file(dir_ / name, shards_[i], format));
    for (const auto& t : shards_[i]) {
      entries.push_back({t.name, name});
      total += t.bytes.size();
    }
  }
  return safetensors::write_index(dir_ / "model.safetensors.index.json", entries, total);
}

}  // namespace dsf::exl3_pack
