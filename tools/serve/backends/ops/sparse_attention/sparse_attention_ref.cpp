#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/sparse_attention/sparse_attention.h"

namespace dsf::serve::ops {
namespace {

constexpr float kFloor = -1e30f;  // the maximum of an empty list; exp(sink - floor) overflows and the output becomes 0

void key_list(const SparseAttentionArgs& a, int64_t r, std::vector<const float*>& keys) {
  keys.clear();
  const float* window = a.window + (a.window_offset != nullptr ? a.window_offset[r] * a.head_dim : 0);
  const float* rows = a.rows + (a.rows_offset != nullptr ? a.rows_offset[r] * a.head_dim : 0);
  for (int64_t p = a.window_begin[r]; p < a.window_end[r]; ++p) keys.push_back(window + p % a.ring_rows * a.head_dim);
  for (int64_t i = 0; i < a.n_selected && a.selection[r * a.n_selected + i] >= 0; ++i) {
    keys.push_back(rows + a.selection[r * a.n_selected + i] * a.head_dim);
  }
}

void attend(const float* q, const std::vector<const float*>& keys, const SparseAttentionArgs& a, float sink,
            std::vector<float>& p, float* out) {
  p.resize(keys.size());
  float top = kFloor;
  for (size_t u = 0; u < keys.size(); ++u) {
    p[u] = dot(q, keys[u], a.head_dim) * a.scale;
    top = std::max(top, p[u]);
  }
  float sum = 0;
  std::fill_n(out, a.head_dim, 0.0f);
  for (size_t u = 0; u < keys.size(); ++u) {
    const float e = std::exp(p[u] - top);
    sum += e;
    for (int64_t d = 0; d < a.head_dim; ++d) out[d] += e * keys[u][d];
  }
  const float denominator = sum + std::exp(sink - top);
  for (int64_t d = 0; d < a.head_dim; ++d) out[d] /= denominator;
}

}  // namespace

void sparse_attention_ref(const SparseAttentionArgs& a) {
  std::vector<const float*> keys;
  std::vector<float> p;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    key_list(a, r, keys);
    for (int64_t h = 0; h < a.n_heads; ++h) {
      const int64_t at = (r * a.n_heads + h) * a.head_dim;
      attend(a.q + at, keys, a, a.sink[h], p, a.out + at);
    }
  }
}

}  // namespace dsf::serve::ops
