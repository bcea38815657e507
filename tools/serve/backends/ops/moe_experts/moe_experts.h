#pragma once
// moe_experts: the chosen experts' SwiGLU and the shared expert, summed in ascending expert order with the shared one
// last.
//
//   g = x w1^T, u = x w3^T;  a = silu(min(g, limit)) * clamp(u, -limit, limit) * weight;  y += a w2^T
//
// The weight (1 for the shared expert) is applied before w2. Any thread; rows are independent. Source: model.md
// section 6.
#include <cstdint>

namespace dsf::serve::ops {

class InputObserver;

struct ExpertWeights {
  const float* w1 = nullptr;  // [inter, dim]
  const float* w3 = nullptr;  // [inter, dim]
  const float* w2 = nullptr;  // [dim, inter]
  int64_t inter = 0;
};

struct MoeExpertsArgs {
  const float* x = nullptr;                // [n_rows, dim]
  const int32_t* ids = nullptr;            // [n_rows, k] ascending
  const float* weights = nullptr;          // [n_rows, k]
  const ExpertWeights* experts = nullptr;  // [n_experts]
  const ExpertWeights* shared = nullptr;   // one, or nullptr
  float* y = nullptr;                      // [n_rows, dim]
  int64_t n_rows = 0, dim = 0, k = 0;
  float limit = 10;                   // swiglu_limit
  InputObserver* observer = nullptr;  // told of every expert's inputs, by the oracle alone
};
void moe_experts_ref(const MoeExpertsArgs& a);

}  // namespace dsf::serve::ops
