#include "tools/serve/backends/cuda/cuda_forward.h"

#include <algorithm>

#include "tools/serve/backends/cuda/forward_detail.h"
#include "tools/serve/backends/cuda/launch_cache.h"

namespace dsf::serve::cuda {

CudaForward::CudaForward(const model::Config& config, const DeviceModel& weights, const CudaForwardOptions& options)
    : config_(config),
      weights_(weights),
      options_(options),
      roles_(model::layer_roles(config)),
      graphs_(options.graphs ? options.max_graphs : 0) {
  heads_ = weights.share.own.heads.size(), groups_ = weights.share.own.groups.size();
  // A step writes all its rows before any is read, and the compressor needs the open group's tokens besides.
  ring_rows_ = std::max<int64_t>(config.sliding_window, 2) + options.max_rows;
  exact_rows_ = options.fake_quant && ops::sparse_attention_mma_fits(config.head_dim);
  packed_caches_ =
      exact_rows_ && !options.f32_caches && ops::index_rows_packed_fits(config.index_n_heads, config.index_head_dim);
  // With no more rows than a selection takes all are taken, and so are their blocks when the budget holds them.
  const int64_t blocks = config.candidate_topk_blocks * config.candidate_block_size;
  score_skip_ = config.candidate_source_layer_id < 0 || blocks >= config.index_topk ? config.index_topk : 0;
}

Result<std::unique_ptr<CudaForward>> CudaForward::create(const model::Config& config, const DeviceModel& weights,
                                                         const gpu::Facts& device, const CudaForwardOptions& options) {
  std::unique_ptr<CudaForward> out(new CudaForward(config, weights, options));
  DSF_TRY(out->stream_, gpu::Stream::create());
  DSF_TRY(out->packed_, PackedLinears::create(config, weights, device, options.max_rows, out->stream_));
  out->workspace_bytes_ += PackedLinears::bytes(config, weights, device, options.max_rows);
  DSF_OK(out->allocate_all());
  return out;
}

Result<void> CudaForward::layer(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  DSF_OK(before_mix(index));
  DSF_OK(step_streams(&w.hc_attn, w.attn_norm));
  DSF_OK(attention(index));
  DSF_OK(report("attn_out", index, y_, config_.hidden_size));
  DSF_OK(step_streams(&w.hc_ffn, w.ffn_norm));
  DSF_OK(experts(index));
  DSF_OK(report("moe_out", index, y_, config_.hidden_size));
  if (!trace.values) return {};
  DSF_OK(expand_only());
  DSF_OK(report("x", index, s_.x, config_.hc_mult * config_.hidden_size));
  return report("pre", index, s_.pre, config_.hc_mult);
}

// Whatever needs the streams whole before the layer's first mix.
Result<void> CudaForward::before_mix(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t table = roles_[static_cast<size_t>(index)].engram;
  if (trace.enter) {
    DSF_OK(expand_only());
    DSF_OK(report_enter(index));
  }
  if (table < 0) return {};
  DSF_OK(expand_only());
  const EngramInput& in = engram_[static_cast<size_t>(table)];
  DSF_OK(ops::engram_rows_cuda(
      {.records = in.records, .values = in.values, .n_records = n_ * c.engram_columns(), .head_dim = c.engram_head_dim},
      raw(stream_)));
  DSF_OK(linear(in.values, w.engram_wkv, engram_kv_, n_));
  DSF_OK(ops::engram_gate_cuda({.kv = engram_kv_,
                                .q_weight = w.engram_q,
                                .k_weight = w.engram_k,
                                .dead = nullptr,
                                .x = s_.x,
                                .n_rows = n_,
                                .n_streams = c.hc_mult,
                                .dim = c.hidden_size,
                                .eps = static_cast<float>(c.rms_norm_eps)},
                               raw(stream_)));
  return report("engram_x", index, s_.x, c.hc_mult * c.hidden_size);
}

// Expands what is pending, mixes (unless mix is null) and leaves the normalised collapse in h_. The collapse uses the
// pre of the mix before.
Result<void> CudaForward::step_streams(const DeviceHyper* mix, const float* norm) {
  const model::Config& c = config_;
  ops::HyperStepArgs a{.y = pending_ ? y_ : nullptr,
                       .post_in = s_.post,
                       .comb_in = s_.comb,
                       .x = s_.x,
                       .pre_in = s_.pre,
                       .norm = norm,
                       .out = h_,
                       .n_rows = n_,
                       .n_streams = c.hc_mult,
                       .dim = c.hidden_size,
                       .sinkhorn_iters = c.hc_sinkhorn_iters,
                       .hc_eps = static_cast<float>(c.hc_eps),
                       .norm_eps = static_cast<float>(c.rms_norm_eps)};
  if (mix != nullptr)
    a.fn = mix->fn, a.scale = mix->scale, a.base = mix->base, a.pre = s_.next_pre, a.post = s_.post, a.comb = s_.comb;
  DSF_OK(ops::hyper_step_cuda(a, hyper_partial_, raw(stream_)));
  if (mix != nullptr) std::swap(s_.pre, s_.next_pre);
  pending_ = mix != nullptr;  // the sub-layer that follows fills y_
  return {};
}

Result<void> CudaForward::expand_only() {
  if (!pending_) return {};
  pending_ = false;
  return ops::hyper_step_cuda({.y = y_,
                               .post_in = s_.post,
                               .comb_in = s_.comb,
                               .x = s_.x,
                               .n_rows = n_,
                               .n_streams = config_.hc_mult,
                               .dim = config_.hidden_size},
                              hyper_partial_, raw(stream_));
}

}  // namespace dsf::serve::cuda
