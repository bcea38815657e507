#pragma once
// Reading table rows: from a checkpoint's tensors or from packed files, behind one interface.
//
// A RowSource owns its file descriptors; const members may run on several threads. Rows are read with pread, nothing is cached here:
// the tables are far larger than memory and on unified-memory machines the page cache is GPU memory.
// Source: engram.md sections 4, 5.1, 6.4.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/layout.h"
#include "dsf/io/file.h"

namespace dsf::engram {

// One record (weights, then scales) -> values. out[j] = e4m3(w[j]) * scale(s[j/32]); exact in f32 and, but for extreme scales, in bf16.
// A scale byte is an f32 exponent field: 0 gives 0.0 and 255 gives infinity (what every engine does), not 2^-127 and NaN.
void dequantize_row(std::span<const std::byte> record, std::span<float> out);
// The same rounded to bf16 bits, NaN as 0xFFFF.
void dequantize_row_bf16(std::span<const std::byte> record, std::span<uint16_t> out);

class RowSource {
 public:
  virtual ~RowSource() = default;
  const Layout& layout() const { return layout_; }
  // Rows of this layer that can be read here.
  virtual RowRange owned(size_t layer_index) const = 0;
  // Raw records of table-global rows, in the given order. out: [rows.size(), layout().row_bytes()].
  // Errors: kUsage when a row is not owned, kLocal and kContent from reading.
  virtual Result<void> read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const = 0;
  // "packed" or "checkpoint", file names, and the digests of the packing records where there are any: for records. Every
  // name stands once.
  virtual std::vector<std::pair<std::string, std::string>> identity() const = 0;

  // Values of table-global rows. out: [rows.size(), layout().head_dim()] f32. For one token's rows in column order this is the
  // concatenated vector e that wkv multiplies.
  Result<void> gather(size_t layer_index, std::span<const int64_t> rows, std::span<float> out) const;

 protected:
  explicit RowSource(Layout layout) : layout_(std::move(layout)) {}
  Layout layout_;
};

// The tensors layers.{L}.engram.embed.{weight,scale} of one layer, wherever the index says they lie. Opens only the files it needs.
struct TableFile {
  io::Fd fd;
  uint64_t offset = 0;  // of row 0
  std::string tensor;
};
struct SourceTable {
  TableFile weight, scale;
};
class CheckpointRows final : public RowSource {
 public:
  // dir: has model.safetensors.index.json, or *.safetensors without an index. Errors: kMissing when an index, file or tensor is
  // absent; kContent for a malformed header or a dtype or shape that is not the layout's.
  static Result<std::unique_ptr<CheckpointRows>> open(const std::filesystem::path& dir, Layout layout);
  RowRange owned(size_t layer_index) const override;
  Result<void> read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const override;
  std::vector<std::pair<std::string, std::string>> identity() const override;
  // Consecutive rows [first, first + n): weights [n, head_dim] and scales [n, head_dim/32], for the packer and the checker.
  Result<void> read_block(size_t layer_index, int64_t first, int64_t n, std::span<std::byte> weights, std::span<std::byte> scales) const;
  const std::vector<SourceTable>& tables() const { return tables_; }
  // Distinct files that hold tables, in order of first use.
  std::vector<std::filesystem::path> files() const;

 private:
  CheckpointRows(Layout layout, std::vector<SourceTable> tables) : RowSource(std::move(layout)), tables_(std::move(tables)) {}
  std::vector<SourceTable> tables_;
};

struct PackedSelection {
  int world = 1;
  int rank = 0;
  bool all_ranks = false;  // open every rank's files (they lie in one folder) and own whole tables; rank is ignored
};
class PackedRows final : public RowSource {
 public:
  // Every check of engram.md 6.4 in its strict form. Errors: kMissing when a file is absent, kContent otherwise.
  static Result<std::unique_ptr<PackedRows>> open(const std::filesystem::path& dir, Layout layout, PackedSelection selection);
  RowRange owned(size_t layer_index) const override;
  Result<void> read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const override;
  std::vector<std::pair<std::string, std::string>> identity() const override;

 private:
  struct Part {
    io::Fd fd;
    RowRange rows;
    int rank = 0;
  };
  PackedRows(Layout layout, std::vector<std::vector<Part>> parts, int world) : RowSource(std::move(layout)), parts_(std::move(parts)), world_(world) {}
  std::vector<std::vector<Part>> parts_;  // [layer index][rank]
  int world_;
};

}  // namespace dsf::engram
