#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/moe_route/moe_route.h"

namespace dsf::serve::ops {
namespace {

float softplus(float z) { return z > 20.0f ? z : std::log1p(std::exp(z)); }

}  // namespace

void moe_route_ref(const MoeRouteArgs& a) {
  DSF_CHECK(a.k <= a.n_experts, "more experts per token than experts");
  std::vector<float> s(static_cast<size_t>(a.n_experts));
  std::vector<int32_t> order(static_cast<size_t>(a.n_experts));
  for (int64_t r = 0; r < a.n_rows; ++r) {
    for (int64_t e = 0; e < a.n_experts; ++e) {
      s[static_cast<size_t>(e)] = std::sqrt(softplus(dot(a.x + r * a.dim, a.gate + e * a.dim, a.dim) / a.temperature));
    }
    const auto choice = [&](int32_t e) { return s[static_cast<size_t>(e)] + a.bias[e]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t p, int32_t q) { return choice(p) > choice(q); });
    int32_t* ids = a.ids + r * a.k;
    std::copy_n(order.begin(), a.k, ids);
    std::sort(ids, ids + a.k);
    float sum = 0;
    for (int64_t i = 0; i < a.k; ++i) sum += s[static_cast<size_t>(ids[i])];
    for (int64_t i = 0; i < a.k; ++i) {
      const float w = s[static_cast<size_t>(ids[i])];
      a.weights[r * a.k + i] = (a.normalise ? w / (sum + 1e-20f) : w) * a.route_scale;
    }
  }
}

}  // namespace dsf::serve::ops
