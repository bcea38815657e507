#include "tools/serve/backends/cuda/cuda_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "tools/serve/backends/cuda/launch.h"

namespace dsf::serve::cuda {
namespace {

// Scores and attention partials are worked off in pieces of rows, so that their workspace has a fixed size.
constexpr int64_t kPieceFloats = int64_t{32} << 20;

ops::CudaStream raw(const gpu::Stream& s) { return static_cast<ops::CudaStream>(s.handle()); }

}  // namespace

CudaForward::CudaForward(const model::Config& config, const DeviceModel& weights, const CudaForwardOptions& options)
    : config_(config), weights_(weights), options_(options), roles_(model::layer_roles(config)) {
  // A step writes all its rows before any is read, and the compressor needs the open group's tokens besides.
  ring_rows_ = std::max<int64_t>(config.sliding_window, 2) + options.max_rows;
}

Result<std::unique_ptr<CudaForward>> CudaForward::create(const model::Config& config, const DeviceModel& weights, const CudaForwardOptions& options) {
  std::unique_ptr<CudaForward> out(new CudaForward(config, weights, options));
  DSF_TRY(out->stream_, gpu::Stream::create());
  DSF_OK(out->allocate_all());
  return out;
}

// ---- memory

Result<float*> CudaForward::floats(int64_t n, size_t& counter) {
  DSF_TRY(gpu::DeviceBuffer buffer, gpu::allocate(static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(float)));
  counter += buffer.bytes();
  owned_.push_back(std::move(buffer));
  return owned_.back().as<float>();
}

CudaForward::StepBlock CudaForward::carve(void* base) const {
  auto* at = static_cast<std::byte*>(base);
  const auto take = [&] {
    auto* p = reinterpret_cast<int64_t*>(at);
    at += static_cast<size_t>(options_.max_rows) * sizeof(int64_t);
    return p;
  };
  StepBlock b{};
  b.tokens = reinterpret_cast<int32_t*>(take());
  for (int64_t** p : {&b.positions, &b.window_begin, &b.window_end, &b.window_offset, &b.window_place, &b.logit_rows}) *p = take();
  for (size_t r = 1; r <= 2; ++r)
    for (int64_t** p : {&b.ratio[r].visible, &b.ratio[r].first_position, &b.ratio[r].group_place, &b.ratio[r].group_offset}) *p = take();
  return b;
}

Result<void> CudaForward::allocate_all() {
  const model::Config& c = config_;
  const int64_t n = options_.max_rows, s = c.hc_mult, d = c.hidden_size, hd = c.head_dim, heads = c.num_attention_heads, slots = options_.slots;
  step_bytes_ = static_cast<size_t>(n) * sizeof(int64_t) * 15;
  DSF_TRY(step_host_, gpu::allocate_pinned(step_bytes_));
  DSF_TRY(step_device_, gpu::allocate(step_bytes_));
  host_ = carve(step_host_.data());
  device_ = carve(step_device_.data());
  DSF_TRY(logits_host_, gpu::allocate_pinned(static_cast<size_t>(options_.max_logit_rows * c.vocab_size) * sizeof(float)));

  int64_t max_keys = 1;
  sources_.resize(roles_.size());
  for (size_t i = 0; i < roles_.size(); ++i) {
    DSF_TRY(float* const ring, floats(slots * ring_rows_ * hd, cache_bytes_));
    window_.push_back(ring);
    if (!roles_[i].owns_kv) continue;
    Source& src = sources_[i];
    src.max_groups = options_.max_len / roles_[i].ratio;
    max_keys = std::max(max_keys, src.max_groups);
    DSF_TRY(src.value, floats(slots * ring_rows_ * hd, cache_bytes_));
    if (roles_[i].ratio > 1) {
      DSF_TRY(src.gate, floats(slots * ring_rows_ * hd, cache_bytes_));
    }
    DSF_TRY(src.rows, floats(slots * src.max_groups * hd, cache_bytes_));
    DSF_TRY(src.keys, floats(slots * src.max_groups * c.index_head_dim, cache_bytes_));
  }

  const int64_t max_active = c.num_experts_per_tok;
  const struct {
    float** to;
    int64_t count;
  } wanted[] = {{&s_.x, n * s * d}, {&s_.pre, n * s}, {&s_.next_pre, n * s}, {&s_.post, n * s}, {&s_.comb, n * s * s}, {&h_, n * d}, {&y_, n * d},
                {&lora_, n * c.q_lora_rank}, {&q_, n * heads * hd}, {&kv_, n * hd}, {&gate_, n * hd}, {&latent_, n * hd}, {&key_, n * c.index_head_dim},
                {&index_q_, n * c.index_n_heads * c.index_head_dim}, {&index_w_, n * c.index_n_heads}, {&score_, std::max(kPieceFloats, max_keys)},
                {&attn_, n * heads * hd}, {&partial_, std::max(kPieceFloats, ops::sparse_attention_workspace(1, heads, hd, c.sliding_window, c.index_topk))},
                {&z_, n * c.o_groups * c.o_lora_rank}, {&route_, n * c.n_routed_experts}, {&expert_weights_, n * max_active},
                {&hidden_, n * (max_active + 1) * weights_.max_expert_width}, {&engram_kv_, n * (s + 1) * d}, {&hyper_partial_, ops::hyper_step_workspace(n, d)},
                {&picked_, n * d}, {&logits_, options_.max_logit_rows * c.vocab_size}};
  for (const auto& w : wanted) {
    DSF_TRY(*w.to, floats(w.count, workspace_bytes_));
  }
  const struct {
    int32_t** to;
    int64_t count;
  } wanted_ids[] = {{&expert_ids_, n * max_active}, {&selection_, n * c.index_topk}, {&blocks_, n * std::max<int64_t>(c.candidate_topk_blocks, 1)}};
  for (const auto& w : wanted_ids) {
    DSF_TRY(float* const p, floats(w.count, workspace_bytes_));
    *w.to = reinterpret_cast<int32_t*>(p);
  }
  for (size_t i = 0; i < c.engram_layer_ids.size(); ++i) {
    DSF_TRY(float* const p, floats(n * c.engram_columns() * c.engram_head_dim, workspace_bytes_));
    engram_.push_back(p);
  }
  const model::YarnScaling& y = c.rope_scaling;
  const std::vector<float> plain = ops::rope_frequencies(c.qk_rope_head_dim, c.rope_theta, {});
  const std::vector<float> yarn = ops::rope_frequencies(c.qk_rope_head_dim, c.compress_rope_theta, {y.enabled, y.factor, y.beta_fast, y.beta_slow, y.original_max_position_embeddings});
  for (const auto& [to, from] : {std::pair(&window_freq_, &plain), std::pair(&compressed_freq_, &yarn)}) {
    DSF_TRY(*to, floats(std::ssize(*from), workspace_bytes_));
    DSF_OK(gpu::copy_to_device(stream_, *to, from->data(), from->size() * sizeof(float)));
  }
  return stream_.wait();
}

// ---- a step

Result<void> CudaForward::upload_step(std::span<const Row> rows, std::span<const std::vector<float>> engram, std::span<const int64_t> logit_rows) {
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

Result<std::span<const float>> CudaForward::run(std::span<const Row> rows, std::span<const std::vector<float>> engram, std::span<const int64_t> logit_rows) {
  DSF_CHECK(std::ssize(rows) <= options_.max_rows && std::ssize(logit_rows) <= options_.max_logit_rows, "a step within the limits");
  const model::Config& c = config_;
  DSF_OK(upload_step(rows, engram, logit_rows));
  DSF_OK(ops::embed_cuda(weights_.embed.f32, weights_.embed.bf16, device_.tokens, s_.x, s_.pre, n_, c.hc_mult, c.hidden_size, raw(stream_)));
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
  DSF_OK(ops::engram_gate_cuda({.kv = engram_kv_, .q_weight = w.engram_q, .k_weight = w.engram_k, .dead = nullptr, .x = s_.x, .n_rows = n_, .n_streams = c.hc_mult,
                                .dim = c.hidden_size, .eps = static_cast<float>(c.rms_norm_eps)}, raw(stream_)));
  return report("engram_x", index, s_.x, c.hc_mult * c.hidden_size);
}

// Expands what is pending, mixes (unless mix is null) and leaves the normalised collapse in h_. The collapse uses the pre of the mix before.
Result<void> CudaForward::step_streams(const DeviceHyper* mix, const float* norm) {
  const model::Config& c = config_;
  ops::HyperStepArgs a{.y = pending_ ? y_ : nullptr, .post_in = s_.post, .comb_in = s_.comb, .x = s_.x, .pre_in = s_.pre, .norm = norm, .out = h_, .n_rows = n_,
                       .n_streams = c.hc_mult, .dim = c.hidden_size, .sinkhorn_iters = c.hc_sinkhorn_iters, .hc_eps = static_cast<float>(c.hc_eps),
                       .norm_eps = static_cast<float>(c.rms_norm_eps)};
  if (mix != nullptr) a.fn = mix->fn, a.scale = mix->scale, a.base = mix->base, a.pre = s_.next_pre, a.post = s_.post, a.comb = s_.comb;
  DSF_OK(ops::hyper_step_cuda(a, hyper_partial_, raw(stream_)));
  if (mix != nullptr) std::swap(s_.pre, s_.next_pre);
  pending_ = mix != nullptr;  // the sub-layer that follows fills y_
  return {};
}

Result<void> CudaForward::expand_only() {
  if (!pending_) return {};
  pending_ = false;
  return ops::hyper_step_cuda({.y = y_, .post_in = s_.post, .comb_in = s_.comb, .x = s_.x, .n_rows = n_, .n_streams = config_.hc_mult, .dim = config_.hidden_size},
                              hyper_partial_, raw(stream_));
}

Result<void> CudaForward::linear(const float* x, const DeviceLinear& l, float* y, int64_t n_rows) {
  return ops::linear_cuda({.x = x, .w = l.f32, .y = y, .n_rows = n_rows, .in = l.in, .out = l.out, .x_stride = l.in, .y_stride = l.out}, l.bf16, raw(stream_));
}

Result<void> CudaForward::rope(float* x, const int64_t* positions, int64_t heads, int64_t width, int64_t ratio, bool inverse) {
  return ops::rope_cuda({.x = x, .positions = positions, .freq = ratio == 0 ? window_freq_ : compressed_freq_, .n_rows = n_, .n_heads = heads, .head_dim = width,
                         .rope_dim = config_.qk_rope_head_dim, .inverse = inverse}, raw(stream_));
}

Result<void> CudaForward::quantise(float* x, int64_t n, ops::FakeQuant format) {
  return options_.fake_quant ? ops::fake_quant_cuda({x, n, format}, raw(stream_)) : Result<void>{};
}

namespace {
Result<void> norm_in_place(float* x, const float* w, int64_t n_rows, int64_t dim, double eps, const gpu::Stream& stream) {
  return ops::rmsnorm_cuda({.x = x, .w = w, .y = x, .n_rows = n_rows, .dim = dim, .eps = static_cast<float>(eps)}, raw(stream));
}
}  // namespace

Result<void> CudaForward::attention(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::LayerRole& role = roles_[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t row = c.num_attention_heads * c.head_dim;
  DSF_OK(linear(h_, w.wq_a, lora_, n_));
  DSF_OK(norm_in_place(lora_, w.q_norm, n_, c.q_lora_rank, c.rms_norm_eps, stream_));
  DSF_OK(linear(lora_, w.wq_b, q_, n_));
  DSF_OK(rope(q_, device_.positions, c.num_attention_heads, c.head_dim, role.ratio));

  DSF_OK(linear(h_, w.wkv, kv_, n_));
  DSF_OK(norm_in_place(kv_, w.kv_norm, n_, c.head_dim, c.rms_norm_eps, stream_));
  DSF_OK(rope(kv_, device_.positions, 1, c.head_dim, role.ratio));
  DSF_OK(quantise(kv_, n_ * c.head_dim, ops::FakeQuant::kWindow));
  DSF_OK(ops::scatter_rows_cuda(kv_, device_.window_place, window_[static_cast<size_t>(index)], n_, c.head_dim, raw(stream_)));

  if (role.owns_kv) DSF_OK(compress(index));
  if (role.owns_index) DSF_OK(select(index));
  DSF_OK(attend(index));
  DSF_OK(rope(attn_, device_.positions, c.num_attention_heads, c.head_dim, role.ratio, /*inverse=*/true));
  DSF_OK(ops::linear_cuda({.x = attn_, .w = w.wo_a.f32, .y = z_, .n_rows = n_, .in = w.wo_a.in, .out = c.o_lora_rank, .x_stride = row, .y_stride = c.o_groups * c.o_lora_rank},
                          w.wo_a.bf16, raw(stream_), {.count = c.o_groups, .x_step = w.wo_a.in, .y_step = c.o_lora_rank}));
  return linear(z_, w.wo_b, y_, n_);
}

// Projections into the rings, then for every row that closes a group: its latent, its index key (from the latent as it is), and the rotated,
// quantised row.
Result<void> CudaForward::compress(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t ratio = roles_[static_cast<size_t>(index)].ratio;
  const StepBlock::PerRatio& at = device_.ratio[static_cast<size_t>(ratio)];
  Source& src = sources_[static_cast<size_t>(index)];
  DSF_OK(linear(h_, w.compress_wkv, kv_, n_));
  DSF_OK(ops::scatter_rows_cuda(kv_, device_.window_place, src.value, n_, c.head_dim, raw(stream_)));
  if (ratio > 1) {
    DSF_OK(linear(h_, w.compress_wgate, gate_, n_));
    DSF_OK(ops::scatter_rows_cuda(gate_, device_.window_place, src.gate, n_, c.head_dim, raw(stream_)));
  }
  DSF_OK(ops::kv_compress_rows_cuda({.value = src.value, .gate = src.gate, .norm = w.compress_norm, .latent = latent_, .first_position = at.first_position,
                                     .ring_offset = device_.window_offset, .n_rows = n_, .ratio = ratio, .ring_rows = ring_rows_, .dim = c.head_dim,
                                     .eps = static_cast<float>(c.rms_norm_eps)}, raw(stream_)));
  DSF_OK(linear(latent_, w.index_wk, key_, n_));
  DSF_OK(norm_in_place(key_, w.index_k_norm, n_, c.index_head_dim, c.rms_norm_eps, stream_));
  DSF_OK(rope(key_, at.first_position, 1, c.index_head_dim, ratio));
  DSF_OK(quantise(key_, n_ * c.index_head_dim, ops::FakeQuant::kIndex));
  DSF_OK(ops::scatter_rows_cuda(key_, at.group_place, src.keys, n_, c.index_head_dim, raw(stream_)));
  DSF_OK(rope(latent_, at.first_position, 1, c.head_dim, ratio));
  DSF_OK(quantise(latent_, n_ * c.head_dim, ops::FakeQuant::kCompressed));
  return ops::scatter_rows_cuda(latent_, at.group_place, src.rows, n_, c.head_dim, raw(stream_));
}

Result<void> CudaForward::select(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::LayerRole& role = roles_[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const StepBlock::PerRatio& at = device_.ratio[static_cast<size_t>(role.ratio)];
  DSF_OK(linear(lora_, w.index_wq_b, index_q_, n_));
  DSF_OK(rope(index_q_, device_.positions, c.index_n_heads, c.index_head_dim, role.ratio));
  DSF_OK(quantise(index_q_, n_ * c.index_n_heads * c.index_head_dim, ops::FakeQuant::kIndex));
  DSF_OK(linear(h_, w.index_weights, index_w_, n_));

  const int64_t n_keys = std::max<int64_t>(longest_ / role.ratio, 1), piece = std::max<int64_t>(kPieceFloats / n_keys, 1);
  for (int64_t r = 0; r < n_; r += piece) {
    const int64_t count = std::min(piece, n_ - r);
    DSF_OK(ops::index_score_cuda({.q = index_q_ + r * c.index_n_heads * c.index_head_dim, .weight = index_w_ + r * c.index_n_heads,
                                  .keys = sources_[static_cast<size_t>(role.kv_source)].keys, .visible = at.visible + r, .score = score_, .n_rows = count, .n_heads = c.index_n_heads,
                                  .dim = c.index_head_dim, .n_keys = n_keys, .keys_offset = at.group_offset + r}, raw(stream_)));
    int32_t* const blocks = blocks_ + r * c.candidate_topk_blocks;
    if (role.candidate_source) {
      DSF_OK(ops::candidate_blocks_cuda({.score = score_, .visible = at.visible + r, .blocks = blocks, .n_rows = count, .n_keys = n_keys, .block_size = c.candidate_block_size,
                                         .max_blocks = c.candidate_topk_blocks}, raw(stream_)));
    }
    DSF_OK(ops::topk_cuda({.score = score_, .blocks = role.candidate_limited ? blocks : nullptr, .selection = selection_ + r * c.index_topk, .n_rows = count, .n_keys = n_keys,
                           .k = c.index_topk, .block_size = c.candidate_block_size, .max_blocks = c.candidate_topk_blocks}, raw(stream_)));
  }
  DSF_OK(report_ids("topk", index, selection_, c.index_topk));
  return role.candidate_source ? report_ids("candidate_blocks", index, blocks_, c.candidate_topk_blocks) : Result<void>{};
}

Result<void> CudaForward::attend(int64_t index) {
  const model::LayerRole& role = roles_[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t heads = c.num_attention_heads, row = heads * c.head_dim, selected = role.ratio > 0 ? c.index_topk : 0;
  const StepBlock::PerRatio& at = device_.ratio[static_cast<size_t>(std::max<int64_t>(role.ratio, 1))];
  const float* const rows = role.ratio > 0 ? sources_[static_cast<size_t>(role.kv_source)].rows : nullptr;
  const int64_t piece = std::max<int64_t>(kPieceFloats / ops::sparse_attention_workspace(1, heads, c.head_dim, c.sliding_window, selected), 1);
  for (int64_t r = 0; r < n_; r += piece) {
    DSF_OK(ops::sparse_attention_cuda({.q = q_ + r * row, .window = window_[static_cast<size_t>(index)], .window_begin = device_.window_begin + r,
                                       .window_end = device_.window_end + r, .rows = rows, .selection = selection_ + r * selected,
                                       .sink = weights_.layers[static_cast<size_t>(index)].sink, .out = attn_ + r * row, .n_rows = std::min(piece, n_ - r), .n_heads = heads,
                                       .head_dim = c.head_dim, .ring_rows = ring_rows_, .n_selected = selected, .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                                       .window_offset = device_.window_offset + r, .rows_offset = at.group_offset + r}, c.sliding_window, partial_, raw(stream_)));
  }
  return {};
}

Result<void> CudaForward::experts(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t k = c.num_experts_per_tok;
  DSF_OK(ops::moe_route_cuda({.x = h_, .gate = w.gate, .bias = w.gate_bias, .ids = expert_ids_, .weights = expert_weights_, .n_rows = n_, .dim = c.hidden_size,
                              .n_experts = c.n_routed_experts, .k = k, .temperature = static_cast<float>(c.gate_temp), .route_scale = static_cast<float>(c.routed_scaling_factor),
                              .normalise = c.norm_topk_prob}, route_, raw(stream_)));
  DSF_OK(report_ids("expert_ids", index, expert_ids_, k));
  DSF_OK(report("expert_weights", index, expert_weights_, k));
  return ops::moe_experts_cuda({.x = h_, .ids = expert_ids_, .weights = expert_weights_, .experts = w.experts, .shared = w.has_shared ? w.experts + c.n_routed_experts : nullptr,
                                .y = y_, .n_rows = n_, .dim = c.hidden_size, .k = k, .limit = static_cast<float>(c.swiglu_limit)}, weights_.max_expert_width, hidden_, raw(stream_));
}

// ---- looking inside

Result<void> CudaForward::report(std::string_view what, int64_t index, const float* device, int64_t per_row) {
  if (!trace.values) return {};
  std::vector<float> host(static_cast<size_t>(n_ * per_row));
  DSF_OK(gpu::copy_to_host(stream_, host.data(), device, host.size() * sizeof(float)));
  DSF_OK(stream_.wait());
  trace.values(what, index, host, n_);
  return {};
}

Result<void> CudaForward::report_ids(std::string_view what, int64_t index, const int32_t* device, int64_t per_row) {
  if (!trace.ids) return {};
  std::vector<int32_t> host(static_cast<size_t>(n_ * per_row));
  DSF_OK(gpu::copy_to_host(stream_, host.data(), device, host.size() * sizeof(int32_t)));
  DSF_OK(stream_.wait());
  trace.ids(what, index, 0, host, n_);
  return {};
}

Result<void> CudaForward::report_enter(int64_t index) {
  std::vector<float> x(static_cast<size_t>(n_ * config_.hc_mult * config_.hidden_size)), pre(static_cast<size_t>(n_ * config_.hc_mult));
  DSF_OK(gpu::copy_to_host(stream_, x.data(), s_.x, x.size() * sizeof(float)));
  DSF_OK(gpu::copy_to_host(stream_, pre.data(), s_.pre, pre.size() * sizeof(float)));
  DSF_OK(stream_.wait());
  trace.enter(index, x, pre);
  DSF_OK(gpu::copy_to_device(stream_, s_.x, x.data(), x.size() * sizeof(float)));
  DSF_OK(gpu::copy_to_device(stream_, s_.pre, pre.data(), pre.size() * sizeof(float)));
  return stream_.wait();
}

}  // namespace dsf::serve::cuda
