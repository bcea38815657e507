#pragma once
// The decoder that every kernel is judged by: codebooks, tiles, the inner (rotated) weights, the effective weights and
// the plain formula.
//
// Pure functions; buffers belong to the caller; any thread. Sizes that do not fit are bugs (DSF_CHECK): a PackedMatrix
// is valid by construction. Every result is the same on every machine: the inner weights bit for bit, and the effective
// weights too, because the two Hadamard sums of fp16 values are exact in double. Source: exl3.md sections 1, 3 and 4.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dsf/exl3/matrix.h"

namespace dsf::exl3 {

// fp16 bits of a 16-bit state.
uint16_t codebook_value(Codebook c, uint16_t state);
// All 65,536 values, computed once per codebook: fp16 bits, and the same as float.
std::span<const uint16_t, 65536> codebook_f16(Codebook c);
std::span<const float, 65536> codebook_f32(Codebook c);

// Where value t (0..255) of a tile stands: the order of the tensor core's B fragment.
struct TilePosition {
  uint8_t row, col;  // row along in, col along out
};
TilePosition tile_position(int t);

using TileStates = std::array<uint16_t, 256>;
// words: the tile as stored, 4 * half_bits uint32. half_bits is twice the width: 2, 4, .. 16 for the widths this
// project packs; odd numbers are the half-integer widths of other packs (exl3.md 3.7).
TileStates unpack_states(std::span<const std::byte> words, int half_bits);
// The inverse for integer widths: words must hold 32 * bits bytes. The states must form a closed path (checked).
void pack_states(const TileStates& states, int bits, std::span<std::byte> words);

// inner: fp16 bits [in, out], row-major.
void decode_inner(const PackedMatrix& m, std::span<uint16_t> inner);

// In-place natural-order Walsh-Hadamard of 128 values without the 1/sqrt(128).
void hadamard128(std::span<float, 128> x);
void hadamard128(std::span<double, 128> x);

// weight: effective W [out, in] row-major, so that y = x W^T; each value is the exact one rounded to f32.
void dequantise(const PackedMatrix& m, std::span<float> weight);

enum class InputRounding {
  kNone,  // the plain formula
  kFp16,  // x * suh and its Hadamard rounded to fp16: what fp16 kernels compute before they multiply
};
// y = H(H(x * suh) inner) * svh. x: [n_rows, in], y: [n_rows, out], row-major. Arithmetic in the type of x and y.
void matmul(const PackedMatrix& m, std::span<const double> x, std::span<double> y,
            InputRounding rounding = InputRounding::kNone);
void matmul(const PackedMatrix& m, std::span<const float> x, std::span<float> y,
            InputRounding rounding = InputRounding::kNone);

}  // namespace dsf::exl3
