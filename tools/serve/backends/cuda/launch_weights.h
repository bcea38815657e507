#pragma once
// Launchers of products with weights in the forms that a checkpoint holds; manners as in launch.h.
#include "tools/serve/backends/cuda/launch.h"

namespace dsf::serve::ops {

// Weights [out, in] in 16 bits; with neither, LinearArgs::w is used.
struct HalfWeights {
  const uint16_t *bf16 = nullptr, *f16 = nullptr;
};
// in must be a multiple of 8. A row's bits do not depend on the other rows or their number, whatever the form.
Result<void> linear_weights_cuda(const LinearArgs& a, const HalfWeights& w, CudaStream stream, const LinearGroups& groups = {});

// What linear_weights_cuda takes for 16-bit weights.
Result<void> linear_mma_cuda(const LinearArgs& a, const HalfWeights& w, CudaStream stream, const LinearGroups& groups);

// The second half of moe_route_cuda, from logits [n_rows, n_experts]; x and gate are not read.
Result<void> moe_choose_cuda(const MoeRouteArgs& a, const float* logits, CudaStream stream);

// Columns of several ranks side by side: to [n_rows, total] from parts [world][n_rows][width]; rank r holds the columns from begin[r] on.
inline constexpr int kJoinRanks = 16;
struct JoinColumnsArgs {
  const float* parts = nullptr;
  float* to = nullptr;
  int64_t n_rows = 0, width = 0, total = 0;
  int world = 1;
  int64_t begin[kJoinRanks];
};
Result<void> join_columns_cuda(const JoinColumnsArgs& a, CudaStream stream);

}  // namespace dsf::serve::ops
