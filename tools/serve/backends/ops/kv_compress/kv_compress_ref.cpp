#include <algorithm>
#include <cmath>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/kv_compress/kv_compress.h"
#include "tools/serve/backends/ops/rmsnorm/rmsnorm.h"

namespace dsf::serve::ops {
namespace {

// One channel of one group: the gate-weighted mean of its tokens' values.
float pool_channel(const KvCompressArgs& a, int64_t first_position, int64_t d) {
  const auto at = [&](const float* ring, int64_t t) { return ring[(first_position + t) % a.ring_rows * a.dim + d]; };
  float top = at(a.gate, 0);
  for (int64_t t = 1; t < a.ratio; ++t) top = std::max(top, at(a.gate, t));
  float sum = 0, weights = 0;
  for (int64_t t = 0; t < a.ratio; ++t) weights += std::exp(at(a.gate, t) - top);
  for (int64_t t = 0; t < a.ratio; ++t) sum += std::exp(at(a.gate, t) - top) / weights * at(a.value, t);
  return sum;
}

}  // namespace

void kv_compress_ref(const KvCompressArgs& a) {
  DSF_CHECK(a.ratio >= 1 && a.ring_rows >= a.ratio && (a.ratio == 1 || a.gate != nullptr), "compressor arguments");
  for (int64_t g = 0; g < a.n_groups; ++g) {
    const int64_t first = (a.first_group + g) * a.ratio;
    for (int64_t d = 0; d < a.dim; ++d) {
      a.latent[g * a.dim + d] = a.ratio == 1 ? a.value[first % a.ring_rows * a.dim + d] : pool_channel(a, first, d);
    }
  }
  rmsnorm_ref({.x = a.latent, .w = a.norm, .y = a.latent, .n_rows = a.n_groups, .dim = a.dim, .eps = a.eps});
}

}  // namespace dsf::serve::ops
