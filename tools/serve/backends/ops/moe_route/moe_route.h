#pragma once
// moe_route: which experts a token takes, and with what weight.
//
//   s = sqrt(softplus(x . gate^T / temperature));  the k largest s + bias are chosen (ties: lower expert);
//   weight = s / sum of the chosen s * route_scale, without bias
//
// Any thread; rows are independent. Source: model.md section 6.
#include <cstdint>

namespace dsf::serve::ops {

struct MoeRouteArgs {
  const float* x = nullptr;     // [n_rows, dim]
  const float* gate = nullptr;  // [n_experts, dim]
  const float* bias = nullptr;  // [n_experts], steers the choice only
  int32_t* ids = nullptr;       // [n_rows, k] ascending
  float* weights = nullptr;     // [n_rows, k]
  int64_t n_rows = 0, dim = 0, n_experts = 0, k = 0;
  float temperature = 1, route_scale = 1;
  bool normalise = true;  // norm_topk_prob
};
void moe_route_ref(const MoeRouteArgs& a);

}  // namespace dsf::serve::ops
