#pragma once
// One layer without its Engram: attention and experts, each between a collapse and an expand of the streams. The same
// in the backbone and in the drafter, which differ in their attention alone. Private to the engine. Source: model.md
// section 3, serving.md section 6.4.
#include "tools/serve/engine/forward.h"

namespace dsf::serve {

template <class Attention>
Result<void> Forward::run_block(int64_t layer, const LayerWeights& w, Vec& x, Vec& pre, Attention&& attention) {
  const int64_t n = std::ssize(pre) / config_.hc_mult;

  cpu::Mix attn_mix = ops_.mix(x, w.hc_attn.fn, w.hc_attn.scale, w.hc_attn.base);
  Vec h = ops_.collapse(x, pre);  // the pre of the previous sub-layer's mix
  ops_.rmsnorm(h, w.attn_norm);
  DSF_TRY(Vec y, attention(h));
  report("attn_out", layer, y, n);
  ops_.expand(y, attn_mix, x);

  cpu::Mix ffn_mix = ops_.mix(x, w.hc_ffn.fn, w.hc_ffn.scale, w.hc_ffn.base);
  h = ops_.collapse(x, attn_mix.pre);
  ops_.rmsnorm(h, w.ffn_norm);
  DSF_TRY(y, moe(layer, w.ffn, h));
  report("moe_out", layer, y, n);
  ops_.expand(y, ffn_mix, x);
  pre = std::move(ffn_mix.pre);

  report("x", layer, x, n);
  report("pre", layer, pre, n);
  return {};
}

}  // namespace dsf::serve
