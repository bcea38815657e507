#include <cmath>

#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/rmsnorm/rmsnorm.h"

namespace dsf::serve::ops {

void rmsnorm_ref(const RmsNormArgs& a) {
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* x = a.x + r * a.dim;
    float* y = a.y + r * a.dim;
    const float scale = 1.0f / std::sqrt(dot(x, x, a.dim) / static_cast<float>(a.dim) + a.eps);
    for (int64_t i = 0; i < a.dim; ++i) y[i] = a.w[i] * (x[i] * scale);
  }
}

}  // namespace dsf::serve::ops
