#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/engram_gate/engram_gate.h"

namespace dsf::serve::ops {
namespace {

float inverse_rms(const float* v, int64_t n, float eps) {
  return 1.0f / std::sqrt(dot(v, v, n) / static_cast<float>(n) + eps);
}

}  // namespace

void engram_gate_ref(const EngramGateArgs& a) {
  const int64_t n = a.dim;
  std::vector<float> xq(static_cast<size_t>(n)), kk(static_cast<size_t>(n));
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* value = a.kv + (r * (a.n_streams + 1) + a.n_streams) * n;
    for (int64_t s = 0; s < a.n_streams; ++s) {
      float* x = a.x + (r * a.n_streams + s) * n;
      const float* key = a.kv + (r * (a.n_streams + 1) + s) * n;
      for (int64_t d = 0; d < n; ++d) {
        xq[static_cast<size_t>(d)] = x[d] * a.q_weight[s * n + d];
        kk[static_cast<size_t>(d)] = key[d] * a.k_weight[s * n + d];
      }
      const float d0 = dot(xq.data(), kk.data(), n) * inverse_rms(x, n, a.eps) * inverse_rms(key, n, a.eps) /
                       std::sqrt(static_cast<float>(n));
      const float root = std::sqrt(std::max(std::fabs(d0), 1e-6f));
      const bool off = a.dead != nullptr && a.dead[r] != 0;
      const float gate = off ? 0.0f : 1.0f / (1.0f + std::exp(d0 < 0 ? root : -root));
      for (int64_t d = 0; d < n; ++d) x[d] += gate * value[d];
    }
  }
}

}  // namespace dsf::serve::ops
