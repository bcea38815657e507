#pragma once
// Makes EXL3 matrices: incoherence transform, scales, and an exact Viterbi search for the trellis path of every tile.
//
// Pure functions of their arguments: the same weights, options and seed give the same bytes on every machine and for
// every number of threads (the arithmetic is IEEE without contraction). Starts `threads` threads of its own and joins
// them before it returns. This is the path without a Hessian; error feedback (LDLQ) only changes the targets that
// quantize_tiles() is given, rows of tiles at a time. Source: exl3.md section 5.
#include <cstdint>
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/exl3/decode.h"
#include "dsf/exl3/matrix.h"

namespace dsf::exl3 {

struct QuantizeOptions {
  int bits = 4;  // 1..8
  Codebook codebook = Codebook::kMul1;
  uint64_t seed = 0;  // of the random signs
  int threads = 0;    // 0: one per core
};

// weight: [out, in] row-major f32, as in y = x W^T; both multiples of 128. Rows or columns of zeros are fine.
// Errors: kUsage for sizes or a width that do not fit the format, kContent for a weight that is not finite.
Result<Matrix> quantize(std::span<const float> weight, int64_t out, int64_t in, const QuantizeOptions& options);

// The trellis search alone. targets: [n_tiles, 256] in the codebook's own scale, each tile in the order of
// tile_position(). states: one closed path per tile, of least squared error among the paths through its boundary node;
// that node is the one of the best free path over the neighbourhood of the boundary (exl3.md 5.2).
void quantize_tiles(std::span<const float> targets, int bits, Codebook codebook, int threads,
                    std::span<TileStates> states);

// Factor from weights of unit variance to the codebook's scale that gives the least error on Gaussian weights
// (exl3.md 5.4).
float best_scale(Codebook codebook, int bits);
// |W - W'| / |W| to expect of Gaussian weights, from the same table.
double expected_error(Codebook codebook, int bits);
// |W - W'| / |W| (Frobenius) of a packed matrix against weight [out, in]; 0 when both are zero.
double relative_error(const PackedMatrix& m, std::span<const float> weight);

}  // namespace dsf::exl3
