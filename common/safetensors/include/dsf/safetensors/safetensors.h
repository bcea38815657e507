#pragma once
// safetensors: header parsing, a tensor index over one file or a sharded checkpoint, bounds-checked views, a writer.
//
// parse_header() trusts nothing: every offset, shape and size is checked, overlaps and holes are errors. File owns its mapping;
// TensorView borrows from it and dies with it. All const members may be called from any thread. Errors: kContent for malformed bytes,
// kMissing for an absent file or tensor; the subject is the path, the tensor is named in the text.
// Source: the safetensors format description; hub.md 5 for the structure checks.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/io/file.h"
#include "dsf/tensor/dtype.h"

namespace dsf::safetensors {

struct TensorInfo {
  std::string name;
  tensor::DType dtype{};
  tensor::Shape shape;
  uint64_t begin = 0, end = 0;  // bytes, relative to the data section
  uint64_t n_bytes() const { return end - begin; }
};

struct Header {
  uint64_t data_offset = 0;  // 8 + header length: where the data section starts in the file
  std::vector<TensorInfo> tensors;                                // by begin offset
  std::vector<std::pair<std::string, std::string>> metadata;      // __metadata__
  uint64_t data_bytes = 0;
  const TensorInfo* find(std::string_view name) const;
};

inline constexpr uint64_t kMaxHeaderBytes = uint64_t{100} * 1000 * 1000;  // the format's own limit

// prefix: at least the first 8 bytes and the header. file_bytes: the size of the whole file (checked against the offsets).
Result<Header> parse_header(std::span<const std::byte> prefix, uint64_t file_bytes, std::string_view subject);
// Reads only the header from disk.
Result<Header> read_header(const std::filesystem::path& path);

struct TensorView {
  const TensorInfo* info = nullptr;
  std::span<const std::byte> bytes;  // may be unaligned: read elements with load_le
  tensor::DType dtype() const { return info->dtype; }
  const tensor::Shape& shape() const { return info->shape; }
};

class File {
 public:
  static Result<File> open(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  const Header& header() const { return *header_; }
  Result<TensorView> tensor(std::string_view name) const;
  const io::Mmap& mapping() const { return map_; }

 private:
  std::filesystem::path path_;
  io::Mmap map_;
  std::unique_ptr<Header> header_;  // stable address for the views
};

// A folder with model.safetensors.index.json, or with one or more *.safetensors when there is no index. Opens every shard.
// Errors: kMissing for a shard the index names, kContent when index and shards disagree or a name stands in two shards.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::filesystem::path& dir);
  // Adds the shards of another folder (for example Engram tables that live elsewhere); names must not collide.
  Result<void> add(const std::filesystem::path& dir);

  bool contains(std::string_view name) const;
  Result<TensorView> tensor(std::string_view name) const;
  // All names, sorted.
  std::vector<std::string> names() const;
  const std::vector<File>& files() const { return files_; }
  const std::filesystem::path& dir() const { return dir_; }
  // The file that holds the tensor, or nullptr.
  const File* file_of(std::string_view name) const;

 private:
  std::filesystem::path dir_;
  std::vector<File> files_;
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> where_;  // name -> file, tensor
};

// Values as float, whatever the stored float type (BF16, F16, F32, F64, F8_E4M3, F8_E8M0); kContent for other types.
Result<std::vector<float>> to_f32(const TensorView& view);
// The other way: row-major bytes of F32, BF16 or F16 (round to nearest even). Another type is a bug.
std::vector<std::byte> from_f32(tensor::DType dtype, std::span<const float> values);
// Integers of any stored integer type.
Result<std::vector<int64_t>> to_i64(const TensorView& view);

struct TensorData {
  std::string name;
  tensor::DType dtype{};
  tensor::Shape shape;
  std::vector<std::byte> bytes;
};
// Writes the tensors in the given order, header padded to 8 bytes with spaces, atomically.
Result<void> write_file(const std::filesystem::path& path, std::span<const TensorData> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata = {});
struct IndexEntry {
  std::string tensor, file;
};
// model.safetensors.index.json, weight_map in the given order.
Result<void> write_index(const std::filesystem::path& path, std::span<const IndexEntry> entries, uint64_t total_size);

}  // namespace dsf::safetensors
