// What CudaForward allocates: caches, workspace, the step block. Everything is allocated here and nowhere else.
#include <algorithm>

#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"
#include "tools/serve/backends/cuda/launch_choice.h"

namespace dsf::serve::cuda {

Result<ForwardBytes> CudaForward::plan(const model::Config& config, const DeviceModel& weights,
                                       const gpu::Facts& device, const CudaForwardOptions& options) {
  CudaForward counted(config, weights, options);
  counted.planning_ = true;
  DSF_OK(counted.allocate_all());
  return ForwardBytes{counted.cache_bytes_,
                      counted.workspace_bytes_ + PackedLinears::bytes(config, weights, device, options.max_rows)};
}

Result<float*> CudaForward::floats(int64_t n, size_t& counter) {
  if (planning_) {
    counter += static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(float);
    return static_cast<float*>(nullptr);
  }
  DSF_TRY(gpu::DeviceBuffer buffer, gpu::allocate(static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(float)));
  counter += buffer.bytes();
  DSF_OK(gpu::fill(stream_, buffer.data(), 0, buffer.bytes()));
  owned_.push_back(std::move(buffer));
  return owned_.back().as<float>();
}

CudaForward::StepBlock CudaForward::carve(void* base, int64_t n_rows) {
  auto* at = static_cast<std::byte*>(base);
  const auto take = [&] {
    auto* p = reinterpret_cast<int64_t*>(at);
    at += static_cast<size_t>(n_rows) * sizeof(int64_t);
    return p;
  };
  StepBlock b{};
  b.tokens = reinterpret_cast<int32_t*>(take());
  for (int64_t** p : {&b.positions, &b.window_begin, &b.window_end, &b.window_offset, &b.window_place, &b.logit_rows})
    *p = take();
  for (size_t r = 1; r <= 2; ++r)
    for (int64_t** p :
         {&b.ratio[r].visible, &b.ratio[r].first_position, &b.ratio[r].group_place, &b.ratio[r].group_offset})
      *p = take();
  return b;
}

Result<CudaForward::Cache> CudaForward::cache(int64_t rows, int64_t dim, ops::FakeQuant format) {
  const int64_t bytes = packed_caches_ ? ops::packed_row_bytes(format, dim) : dim * static_cast<int64_t>(sizeof(float));
  DSF_TRY(float* const p, floats((rows * bytes + 3) / 4, cache_bytes_));
  return packed_caches_ ? Cache{nullptr, reinterpret_cast<uint8_t*>(p)} : Cache{p, nullptr};
}

Result<void> CudaForward::allocate_caches() {
  const int64_t hd = config_.head_dim, ring = options_.slots * ring_rows_;
  sources_.resize(roles_.size());
  for (size_t i = 0; i < roles_.size(); ++i) {
    DSF_TRY(const Cache window, cache(ring, hd, ops::FakeQuant::kWindow));
    window_.push_back(window);
    if (!roles_[i].owns_kv) continue;
    Source& src = sources_[i];
    src.max_groups = options_.max_len / roles_[i].ratio;
    DSF_TRY(src.value, floats(ring * hd, cache_bytes_));
    if (roles_[i].ratio > 1) {
      DSF_TRY(src.gate, floats(ring * hd, cache_bytes_));
    }
    DSF_TRY(src.rows, cache(options_.slots * src.max_groups, hd, ops::FakeQuant::kCompressed));
    DSF_TRY(src.keys, cache(options_.slots * src.max_groups, config_.index_head_dim, ops::FakeQuant::kIndex));
  }
  return {};
}

size_t CudaForward::cache_bytes_per_token() const {
  const auto row = [&](ops::FakeQuant format, int64_t dim) {
    return packed_caches_ ? ops::packed_row_bytes(format, dim) : dim * static_cast<int64_t>(sizeof(float));
  };
  int64_t twice = 0;  // of two tokens, so that ratio 2 is whole
  for (const model::LayerRole& r : roles_) {
    if (r.owns_kv)
      twice +=
          2 / r.ratio *
          (row(ops::FakeQuant::kCompressed, config_.head_dim) + row(ops::FakeQuant::kIndex, config_.index_head_dim));
  }
  return static_cast<size_t>(twice / 2);
}

// What host and device exchange each step.
Result<void> CudaForward::allocate_exchange() {
  const model::Config& c = config_;
  const int64_t n = options_.max_rows, logit_rows = options_.max_logit_rows;
  DSF_TRY(step_host_, gpu::allocate_pinned(step_bytes(n)));
  DSF_TRY(step_device_, gpu::allocate(step_bytes(n)));
  DSF_TRY(choice_host_, gpu::allocate_pinned(choice_bytes(logit_rows)));
  DSF_TRY(choice_device_, gpu::allocate(choice_bytes(logit_rows)));
  DSF_TRY(logits_host_, gpu::allocate_pinned(static_cast<size_t>(logit_rows * c.vocab_size) * sizeof(float)));
  for (size_t i = 0; i < c.engram_layer_ids.size(); ++i) {
    const auto bytes = static_cast<size_t>(n * c.engram_columns() * engram_record_bytes());
    DSF_TRY(gpu::PinnedBuffer host, gpu::allocate_pinned(bytes));
    engram_host_.push_back(std::move(host));
  }
  return {};
}

Result<void> CudaForward::allocate_all() {
  const model::Config& c = config_;
  const DeviceShare& share = weights_.share;
  const int64_t n = options_.max_rows, s = c.hc_mult, d = c.hidden_size, hd = c.head_dim, heads = heads_;
  if (!planning_) DSF_OK(allocate_exchange());
  DSF_OK(allocate_caches());
  int64_t max_keys = std::max<int64_t>(c.candidate_topk_blocks * c.candidate_block_size, 1);
  for (const Source& src : sources_) max_keys = std::max(max_keys, src.max_groups);

  const int64_t max_active = c.num_experts_per_tok,
                max_blocks = c.candidate_block_size > 0 ? max_keys / c.candidate_block_size + 1 : 0,
                attention_row = ops::sparse_attention_workspace(1, heads, hd, c.sliding_window, c.index_topk);
  const struct {
    float** to;
    int64_t count;
  } wanted[] = {{&s_.x, n * s * d},
                {&s_.pre, n * s},
                {&s_.next_pre, n * s},
                {&s_.post, n * s},
                {&s_.comb, n * s * s},
                {&h_, n * d},
                {&y_, n * d},
                {&lora_, n * c.q_lora_rank},
                {&q_, n * heads * hd},
                {&kv_, n * hd},
                {&gate_, n * hd},
                {&latent_, n * hd},
                {&key_, n * c.index_head_dim},
                {&index_q_, n * c.index_n_heads * c.index_head_dim},
                {&index_w_, n * c.index_n_heads},
                {&score_, std::max(std::min(kPieceFloats, n * max_keys), max_keys)},
                {&select_, std::max(ops::select_workspace(kSelectRows, max_keys, c.index_topk),
                                    ops::select_workspace(kSelectRows, max_blocks, c.candidate_topk_blocks))},
                {&attn_, n * heads * hd},
                {&partial_, std::max(std::min(kPieceFloats, n * attention_row), attention_row)},
                {&choice_, ops::choose_token_workspace(options_.max_logit_rows, c.vocab_size)},
                {&z_, n * groups_ * c.o_lora_rank},
                {&route_, n * c.n_routed_experts},
                {&expert_weights_, n * max_active},
                {&hidden_, n * (max_active + 1) * weights_.max_expert_width},
                {&engram_kv_, n * (s + 1) * d},
                {&hyper_partial_, ops::hyper_step_workspace(n, d)},
                {&picked_, n * d},
                {&logits_, options_.max_logit_rows * c.vocab_size},
                {&gathered_, share.world > 1 ? share.world * options_.max_logit_rows * share.vocab_width : 0}};
  for (const auto& w : wanted) {
    DSF_TRY(*w.to, floats(w.count, workspace_bytes_));
  }
  const struct {
    int32_t** to;
    int64_t count;
  } wanted_ids[] = {{&expert_ids_, n * max_active},
                    {&selection_, n * c.index_topk},
                    {&blocks_, n * std::max<int64_t>(c.candidate_topk_blocks, 1)}};
  for (const auto& w : wanted_ids) {
    DSF_TRY(float* const p, floats(w.count, workspace_bytes_));
    *w.to = reinterpret_cast<int32_t*>(p);
  }
  for (size_t i = 0; i < c.engram_layer_ids.size(); ++i) {
    EngramInput in;
    const int64_t records = n * c.engram_columns();
    DSF_TRY(in.values, floats(records * c.engram_head_dim, workspace_bytes_));
    DSF_TRY(float* const p, floats((records * engram_record_bytes() + 3) / 4, workspace_bytes_));
    in.records = reinterpret_cast<uint8_t*>(p);
    engram_.push_back(in);
  }
  const model::YarnScaling& y = c.rope_scaling;
  const std::vector<float> plain = ops::rope_frequencies(c.qk_rope_head_dim, c.rope_theta, {});
  const std::vector<float> yarn =
      ops::rope_frequencies(c.qk_rope_head_dim, c.compress_rope_theta,
                            {y.enabled, y.factor, y.beta_fast, y.beta_slow, y.original_max_position_embeddings});
  for (const auto& [to, from] : {std::pair(&window_freq_, &plain), std::pair(&compressed_freq_, &yarn)}) {
    DSF_TRY(*to, floats(std::ssize(*from), workspace_bytes_));
    if (planning_) continue;
    DSF_OK(gpu::copy_to_device(stream_, *to, from->data(), from->size() * sizeof(float)));
  }
  return planning_ ? Result<void>{} : stream_.wait();
}

}  // namespace dsf::serve::cuda
