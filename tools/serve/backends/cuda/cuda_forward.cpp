#include "tools/serve/backends/cuda/cuda_forward.h"

#include <algorithm>

#include "dsf/base/check.h"
#include "tools/serve/backends/cuda/forward_detail.h"

namespace dsf::serve::cuda {

CudaForward::CudaForward(const model::Config& config, const DeviceModel& weights, const CudaForwardOptions& options)
    : config_(config), weights_(weights), options_(options), roles_(model::layer_roles(config)) {
  // A step writes all its rows before any is read, and the compressor needs the open group's tokens besides.
  ring_rows_ = std::max<int64_t>(config.sliding_window, 2) + options.max_rows;
}

Result<std::unique_ptr<CudaForward>> CudaForward::create(const model::Config& config, const DeviceModel& weights, const gpu::Facts& device,
                                                         const CudaForwardOptions& options) {
  std::unique_ptr<CudaForward> out(new CudaForward(config, weights, options));
  DSF_TRY(out->stream_, gpu::Stream::create());
  DSF_TRY(out->packed_, PackedLinears::create(config, weights, device, options.max_rows, out->stream_));
  out->workspace_bytes_ += PackedLinears::bytes(config, weights, device, options.max_rows);
  DSF_OK(out->allocate_all());
  return out;
}

// ---- a step

Result<void> CudaForward::upload_step(std::span<const Row> rows, std::span<const std::vector<float>> engram,
                                      std::span<const int64_t> logit_rows) {
  n_ = std::ssize(rows);
  longest_ = 0;
  for (int64_t i = 0; i < n_; ++i) {
    const Row& r = rows[static_cast<size_t>(i)];
    const int64_t end = r.position + 1;
    longest_ = std::max(longest_, end);
    host_.tokens[i] = r.token;
    host_.positions[i] = r.position;
    host_.window_begin[i] = std::max<int64_t>(0, end - config_.sliding_window);
    host_.window_end[i] = end;
    host_.window_offset[i] = r.slot * ring_rows_;
    host_.window_place[i] = r.slot * ring_rows_ + r.position % ring_rows_;
    for (int64_t ratio = 1; ratio <= 2; ++ratio) {
      const StepBlock::PerRatio& p = host_.ratio[static_cast<size_t>(ratio)];
      const int64_t max_groups = options_.max_len / ratio, groups = end / ratio;
      const bool closes = end % ratio == 0;
      p.visible[i] = groups;
      p.first_position[i] = closes ? end - ratio : -1;
      p.group_place[i] = closes ? r.slot * max_groups + groups - 1 : -1;
      p.group_offset[i] = r.slot * max_groups;
    }
  }
  std::copy(logit_rows.begin(), logit_rows.end(), host_.logit_rows);
  DSF_OK(gpu::copy_to_device(stream_, step_device_.data(), step_host_.data(), step_bytes_));
  for (size_t i = 0; i < engram_.size(); ++i) {
    DSF_OK(gpu::copy_to_device(stream_, engram_[i], engram[i].data(), engram[i].size() * sizeof(float)));
  }
  return {};
}

Result<std::span<const float>> CudaForward::run(std::span<const Row> rows, std::span<const std::vector<float>> engram,
                                                std::span<const int64_t> logit_rows) {
  DSF_CHECK(std::ssize(rows) <= options_.max_rows && std::ssize(logit_rows) <= options_.max_logit_rows,
            "a step within the limits");
  const model::Config& c = config_;
  DSF_OK(upload_step(rows, engram, logit_rows));
  DSF_OK(ops::embed_cuda(weights_.embed.f32, weights_.embed.bf16, device_.tokens, s_.x, s_.pre, n_, c.hc_mult,
                         c.hidden_size, raw(stream_)));
  pending_ = false;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) DSF_OK(layer(i));
  const auto wanted = std::ssize(logit_rows);
  DSF_OK(step_streams(nullptr, weights_.norm));
  DSF_OK(ops::gather_rows_cuda(h_, device_.logit_rows, picked_, wanted, c.hidden_size, raw(stream_)));
  DSF_OK(linear(picked_, weights_.head, logits_, wanted));
  const size_t bytes = static_cast<size_t>(wanted * c.vocab_size) * sizeof(float);
  DSF_OK(gpu::copy_to_host(stream_, logits_host_.data(), logits_, bytes));
  DSF_OK(stream_.wait());
  return std::span<const float>(logits_host_.as<float>(), bytes / sizeof(float));
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
  DSF_OK(linear(engram_[static_cast<size_t>(table)], w.engram_wkv, engram_kv_, n_));
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
