#include <algorithm>
#include <array>
#include <cmath>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/hyper_mix/hyper_mix.h"

namespace dsf::serve::ops {
namespace {

float sigmoid(float z) { return 1.0f / (1.0f + std::exp(-z)); }

// c[j][k] /= sum over k, per row j.
void normalise_rows(float* c, int64_t s, float eps) {
  for (int64_t j = 0; j < s; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < s; ++k) sum += c[j * s + k];
    for (int64_t k = 0; k < s; ++k) c[j * s + k] /= sum + eps;
  }
}

void normalise_columns(float* c, int64_t s, float eps) {
  for (int64_t k = 0; k < s; ++k) {
    float sum = 0;
    for (int64_t j = 0; j < s; ++j) sum += c[j * s + k];
    for (int64_t j = 0; j < s; ++j) c[j * s + k] /= sum + eps;
  }
}

// Softmax over k, then alternating normalisation towards a doubly stochastic matrix.
void sinkhorn(float* c, int64_t s, int64_t iters, float eps) {
  for (int64_t j = 0; j < s; ++j) {
    float* row = c + j * s;
    const float top = *std::max_element(row, row + s);
    for (int64_t k = 0; k < s; ++k) row[k] = std::exp(row[k] - top);
  }
  normalise_rows(c, s, 0.0f);
  for (int64_t i = 0; i < s * s; ++i) c[i] += eps;
  normalise_columns(c, s, eps);
  for (int64_t sweep = 1; sweep < iters; ++sweep) {
    normalise_rows(c, s, eps);
    normalise_columns(c, s, eps);
  }
}

}  // namespace

void hyper_mix_ref(const HyperMixArgs& a) {
  const int64_t s = a.n_streams, n = s * a.dim;
  DSF_CHECK(s > 0 && s <= kMaxStreams, "stream count");
  std::array<float, (2 + kMaxStreams) * kMaxStreams> m{};
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* v = a.x + r * n;
    const float rs = 1.0f / std::sqrt(dot(v, v, n) / static_cast<float>(n) + a.norm_eps);
    for (int64_t j = 0; j < (2 + s) * s; ++j) m[static_cast<size_t>(j)] = dot(v, a.fn + j * n, n) * rs;
    for (int64_t i = 0; i < s; ++i) {
      a.pre[r * s + i] = sigmoid(m[static_cast<size_t>(i)] * a.scale[0] + a.base[i]) + a.hc_eps;
      a.post[r * s + i] = 2.0f * sigmoid(m[static_cast<size_t>(s + i)] * a.scale[1] + a.base[s + i]);
    }
    float* c = a.comb + r * s * s;
    for (int64_t i = 0; i < s * s; ++i) c[i] = m[static_cast<size_t>(2 * s + i)] * a.scale[2] + a.base[2 * s + i];
    sinkhorn(c, s, a.sinkhorn_iters, a.hc_eps);
  }
}

void hyper_collapse_ref(const HyperCollapseArgs& a) {
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* x = a.x + r * a.n_streams * a.dim;
    for (int64_t d = 0; d < a.dim; ++d) {
      float sum = 0;
      for (int64_t s = 0; s < a.n_streams; ++s) sum += a.pre[r * a.n_streams + s] * x[s * a.dim + d];
      a.y[r * a.dim + d] = sum;
    }
  }
}

void hyper_expand_ref(const HyperExpandArgs& a) {
  const int64_t s = a.n_streams;
  DSF_CHECK(s > 0 && s <= kMaxStreams, "stream count");
  std::array<float, kMaxStreams> old{};
  for (int64_t r = 0; r < a.n_rows; ++r) {
    float* x = a.x + r * s * a.dim;
    const float* comb = a.comb + r * s * s;
    for (int64_t d = 0; d < a.dim; ++d) {
      for (int64_t j = 0; j < s; ++j) old[static_cast<size_t>(j)] = x[j * a.dim + d];
      for (int64_t k = 0; k < s; ++k) {
        float sum = 0;
        for (int64_t j = 0; j < s; ++j) sum += comb[j * s + k] * old[static_cast<size_t>(j)];
        x[k * a.dim + d] = a.post[r * s + k] * a.y[r * a.dim + d] + sum;
      }
    }
  }
}

}  // namespace dsf::serve::ops
