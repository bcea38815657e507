#pragma once
// hyper_mix: the hyper-connection of one sub-layer: mix coefficients from the streams, collapse to one vector, expand
// back.
//
// Key: S streams (hc_mult), D hidden size, M = (2 + S) * S mix values: S pre, S post, S x S comb (row = source, column
// = destination). A mix's pre is consumed by the NEXT sub-layer, its post and comb by the current one. Everything f32.
// Any thread; rows independent. Source: model.md sections 3.1, 3.2.
#include <cstdint>

namespace dsf::serve::ops {

struct HyperMixArgs {
  const float* x = nullptr;      // [n_rows, S, D]
  const float* fn = nullptr;     // [M, S * D]
  const float* scale = nullptr;  // [3]: pre, post, comb
  const float* base = nullptr;   // [M]
  float* pre = nullptr;          // [n_rows, S]
  float* post = nullptr;         // [n_rows, S]
  float* comb = nullptr;         // [n_rows, S, S]
  int64_t n_rows = 0, n_streams = 4, dim = 0;
  int64_t sinkhorn_iters = 20;
  float hc_eps = 1e-6f, norm_eps = 1e-20f;
};
void hyper_mix_ref(const HyperMixArgs& a);

struct HyperCollapseArgs {
  const float* x = nullptr;    // [n_rows, S, D]
  const float* pre = nullptr;  // [n_rows, S]
  float* y = nullptr;          // [n_rows, D]
  int64_t n_rows = 0, n_streams = 4, dim = 0;
};
void hyper_collapse_ref(const HyperCollapseArgs& a);

struct HyperExpandArgs {
  const float* y = nullptr;     // [n_rows, D]: what the sub-layer gave
  const float* post = nullptr;  // [n_rows, S]
  const float* comb = nullptr;  // [n_rows, S, S]
  float* x = nullptr;           // [n_rows, S, D]: the residual streams, replaced in place
  int64_t n_rows = 0, n_streams = 4, dim = 0;
};
void hyper_expand_ref(const HyperExpandArgs& a);

inline constexpr int64_t kMaxStreams = 16;

}  // namespace dsf::serve::ops
