#pragma once
// Makes EXL3 matrices: incoherence transform, scales, error feedback (LDLQ) where the inputs are known, and an exact
// Viterbi search for the trellis path of every tile.
//
// Pure functions of their arguments: the same weights, options, moments and seed give the same bytes on every machine
// and for every number of threads (the arithmetic is IEEE without contraction). quantize() starts `threads` threads of
// its own and joins them before it returns. Memory beside the arguments: 8 bytes a weight, 16 * in^2 bytes with
// moments, and per thread at most 9 MB and 256 bytes an input. Source: exl3.md section 5.
#include <cstdint>
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/exl3/hessian.h"
#include "dsf/exl3/matrix.h"

namespace dsf::exl3 {

struct QuantizeOptions {
  int bits = 4;  // 1..8
  Codebook codebook = Codebook::kMul1;
  uint64_t seed = 0;  // of the random signs
  int threads = 0;    // 0: one per core
  // Second moments of the inputs, borrowed: each row of tiles then takes up what the rows after it left over, weighted
  // by how their inputs go together. nullptr, or moments without rows: every tile aims at its own weights.
  const Hessian* hessian = nullptr;
  // Added to the diagonal of the rotated moments, in units of its mean.
  double damping = 0.025;
};

// weight: [out, in] row-major f32, as in y = x W^T; both multiples of 128. Rows or columns of zeros are fine.
// Errors: kUsage for sizes or a width that do not fit the format, or moments of another size; kContent for a weight or
// a moment that is not finite.
Result<Matrix> quantize(std::span<const float> weight, int64_t out, int64_t in, const QuantizeOptions& options);

// Factor from weights of unit variance to the codebook's scale that gives the least error on Gaussian weights
// (exl3.md 5.4).
float best_scale(Codebook codebook, int bits);
// |W - W'| / |W| to expect of Gaussian weights, from the same table.
double expected_error(Codebook codebook, int bits);
// |W - W'| / |W| (Frobenius) of a packed matrix against weight [out, in]; 0 when both are zero.
double relative_error(const PackedMatrix& m, std::span<const float> weight);
// The same of the outputs, over the inputs that the moments were taken from (in() of them as m has inputs):
// sqrt(tr((W - W') H (W - W')^T) / tr(W H W^T)).
double relative_output_error(const PackedMatrix& m, std::span<const float> weight, const Hessian& hessian);

}  // namespace dsf::exl3
