#pragma once
// One EXL3 matrix: the borrowed view that readers and kernels take, the owner that the quantizer and the rank splits
// make, and the way to it from a checkpoint.
//
// Stored form of a linear P with `in` inputs and `out` outputs (both multiples of 128), `bits` per weight:
//   P.trellis  I16 [in/16, out/16, 16 * bits]   16x16 tiles of the rotated weights, see decode.h
//   P.suh      F16 [in]                          input signs times scales
//   P.svh      F16 [out]                         output signs times scales
//   P.mul1 or P.mcg  I32 []                      codebook marker; neither means 3INST
// The width stands in the trellis shape alone; it differs from tensor to tensor, and no config value replaces it.
// A PackedMatrix borrows from the checkpoint's mapping (or from a Matrix) and must not outlive it. Const access from
// any thread. Source: exl3.md sections 1, 2 and 7.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::exl3 {

enum class Codebook { k3Inst, kMcg, kMul1 };
std::string_view codebook_name(Codebook c);  // "3inst", "mcg", "mul1"

inline constexpr uint32_t kMcgMultiplier = 0xCBAC1FEDu;   // also the value of the P.mcg marker
inline constexpr uint32_t kMul1Multiplier = 0x83DCD12Du;  // also the value of the P.mul1 marker
inline constexpr int64_t kTile = 16;                      // a tile is 16 x 16 weights
inline constexpr int64_t kBlock = 128;                    // Hadamard block: the granularity of both axes
inline constexpr int kMaxBits = 8;

// A span may start at any byte: read elements with load_le, or copy before giving it to a kernel.
struct PackedMatrix {
  int64_t in = 0;   // K of exl3.md: rows of the rotated matrix
  int64_t out = 0;  // N: columns
  int bits = 0;     // 1..8
  Codebook codebook = Codebook::kMul1;
  std::span<const std::byte> trellis;  // uint16 [in/16, out/16, 16 * bits], C order
  std::span<const std::byte> suh;      // fp16 [in]
  std::span<const std::byte> svh;      // fp16 [out]

  size_t tile_bytes() const { return 32 * static_cast<size_t>(bits); }
  // The words of one tile: 16 * bits little-endian uint16.
  std::span<const std::byte> tile(int64_t kt, int64_t nt) const {
    return trellis.subspan(static_cast<size_t>(kt * (out / kTile) + nt) * tile_bytes(), tile_bytes());
  }
};

// Owns what a PackedMatrix borrows.
struct Matrix {
  int64_t in = 0, out = 0;
  int bits = 0;
  Codebook codebook = Codebook::kMul1;
  std::vector<uint16_t> trellis, suh, svh;

  PackedMatrix view() const;
};

// Whether P is stored as a trellis ("P.trellis" is present). Says nothing about its validity.
bool is_packed(const safetensors::Checkpoint& checkpoint, std::string_view name);

// Opens P and checks everything that can be checked without decoding: the parts present, dtypes, shapes, multiples of
// 128, width 1..8, at most one marker and its value, suh and svh finite. Errors, each naming the tensor: kMissing for
// an absent part, kContent otherwise; half-integer widths, packed sign vectors (P.su, P.sv) and biases are refused,
// since no V4.1 pack has them.
Result<PackedMatrix> open(const safetensors::Checkpoint& checkpoint, std::string_view name);
// The same, and the matrix must have this size (from the model's configuration).
Result<PackedMatrix> open(const safetensors::Checkpoint& checkpoint, std::string_view name, int64_t out, int64_t in);

// The part of one rank; [first, last) must be multiples of 128 inside the axis, otherwise kUsage.
// Columns: outputs first..last, full suh; the rank's output is its own slice. Rows: inputs first..last, full svh; the
// ranks' outputs add up.
Result<Matrix> slice_columns(const PackedMatrix& m, int64_t first, int64_t last);
Result<Matrix> slice_rows(const PackedMatrix& m, int64_t first, int64_t last);

// The four tensors P.trellis, P.suh, P.svh and the marker, in this order, for safetensors::write_file.
std::vector<safetensors::TensorData> to_tensors(const Matrix& m, std::string_view name);

}  // namespace dsf::exl3
