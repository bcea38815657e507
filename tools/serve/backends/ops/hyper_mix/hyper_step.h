#pragma once
// hyper_step: everything between two sub-layers in one op, in the order of the model:
//
//   X    = expand(y, X; post_in, comb_in)                      (skipped when y is null: the first sub-layer, and after an Engram)
//   (pre, post, comb) = mix(X; fn, scale, base)
//   out  = rmsnorm(collapse(X; pre_in); norm)                  pre_in is the pre of the mix before
//
// Equal to hyper_expand, hyper_mix, hyper_collapse and rmsnorm one after the other; a device saves launches and passes over X. With fn null
// there is no mix (before the head); with out null the streams are expanded and nothing else is done. Source: model.md section 3.
#include <cstdint>

namespace dsf::serve::ops {

struct HyperStepArgs {
  const float* y = nullptr;        // [n_rows, D] the sub-layer's output, or nullptr
  const float* post_in = nullptr;  // [n_rows, S], with y
  const float* comb_in = nullptr;  // [n_rows, S, S], with y
  float* x = nullptr;              // [n_rows, S, D] streams, updated in place when y is given
  const float* fn = nullptr;       // [(2 + S) * S, S * D], or nullptr
  const float* scale = nullptr;    // [3]
  const float* base = nullptr;     // [(2 + S) * S]
  float* pre = nullptr;            // [n_rows, S]; must not be pre_in
  float* post = nullptr;           // [n_rows, S]; may be post_in
  float* comb = nullptr;           // [n_rows, S, S]; may be comb_in
  const float* pre_in = nullptr;   // [n_rows, S]
  const float* norm = nullptr;     // [D]
  float* out = nullptr;            // [n_rows, D], or nullptr
  int64_t n_rows = 0, n_streams = 4, dim = 0;
  int64_t sinkhorn_iters = 20;
  float hc_eps = 1e-6f, norm_eps = 1e-20f;
};

}  // namespace dsf::serve::ops
