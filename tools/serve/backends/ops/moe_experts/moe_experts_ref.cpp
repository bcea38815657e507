#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/common/input_observer.h"
#include "tools/serve/backends/ops/moe_experts/moe_experts.h"

namespace dsf::serve::ops {
namespace {

float silu(float z) { return z / (1.0f + std::exp(-z)); }

// y += expert(x) * weight
void add_expert(const MoeExpertsArgs& a, const float* x, const ExpertWeights& e, float weight, std::vector<float>& act,
                float* y) {
  const int64_t dim = a.dim;
  act.resize(static_cast<size_t>(e.inter));
  if (a.observer != nullptr) {
    for (const float* w : {e.w1, e.w3}) a.observer->inputs(w, x, dim, 1, dim);
  }
  for (int64_t i = 0; i < e.inter; ++i) {
    const float g = std::min(dot(x, e.w1 + i * dim, dim), a.limit);
    const float u = std::clamp(dot(x, e.w3 + i * dim, dim), -a.limit, a.limit);
    act[static_cast<size_t>(i)] = weight * (silu(g) * u);
  }
  if (a.observer != nullptr) a.observer->inputs(e.w2, act.data(), e.inter, 1, e.inter);
  for (int64_t d = 0; d < dim; ++d) y[d] += dot(act.data(), e.w2 + d * e.inter, e.inter);
}

}  // namespace

void moe_experts_ref(const MoeExpertsArgs& a) {
  std::vector<float> act;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* x = a.x + r * a.dim;
    float* y = a.y + r * a.dim;
    std::fill_n(y, a.dim, 0.0f);
    for (int64_t i = 0; i < a.k; ++i) add_expert(a, x, a.experts[a.ids[r * a.k + i]], a.weights[r * a.k + i], act, y);
    if (a.shared != nullptr) add_expert(a, x, *a.shared, 1.0f, act, y);
  }
}

}  // namespace dsf::serve::ops
