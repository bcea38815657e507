// What CudaForward allocates: caches, workspace, the step block. Everything is allocated here and nowhere else.
#include <algorithm>

#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"

namespace dsf::serve::cuda {

Result<ForwardBytes> CudaForward::plan(const model::Config& config, const DeviceModel& weights, const gpu::Facts& device,
                                       const CudaForwardOptions& options) {
  CudaForward counted(config, weights, options);
  counted.planning_ = true;
  DSF_OK(counted.allocate_all());
  return ForwardBytes{counted.cache_bytes_, counted.workspace_bytes_ + PackedLinears::bytes(config, weights, device, options.max_rows)};
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

CudaForward::StepBlock CudaForward::carve(void* base) const {
  auto* at = static_cast<std::byte*>(base);
  const auto take = [&] {
    auto* p = reinterpret_cast<int64_t*>(at);
    at += static_cast<size_t>(options_.max_rows) * sizeof(int64_t);
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

Result<void> CudaForward::allocate_all() {
  const model::Config& c = config_;
  const int64_t n = options_.max_rows, s = c.hc_mult, d = c.hidden_size, hd = c.head_dim, heads = c.num_attention_heads,
                slots = options_.slots;
  step_bytes_ = static_cast<size_t>(n) * sizeof(int64_t) * 15;
  if (!planning_) {
    DSF_TRY(step_host_, gpu::allocate_pinned(step_bytes_));
    DSF_TRY(step_device_, gpu::allocate(step_bytes_));
    host_ = carve(step_host_.data());
    device_ = carve(step_device_.data());
    DSF_TRY(logits_host_,
            gpu::allocate_pinned(static_cast<size_t>(options_.max_logit_rows * c.vocab_size) * sizeof(float)));
  }

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
                {&score_, std::max(kPieceFloats, max_keys)},
                {&attn_, n * heads * hd},
                {&partial_,
                 std::max(kPieceFloats, ops::sparse_attention_workspace(1, heads, hd, c.sliding_window, c.index_topk))},
                {&z_, n * c.o_groups * c.o_lora_rank},
                {&route_, n * c.n_routed_experts},
                {&expert_weights_, n * max_active},
                {&hidden_, n * (max_active + 1) * weights_.max_expert_width},
                {&engram_kv_, n * (s + 1) * d},
                {&hyper_partial_, ops::hyper_step_workspace(n, d)},
                {&picked_, n * d},
                {&logits_, options_.max_logit_rows * c.vocab_size}};
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
    DSF_TRY(float* const p, floats(n * c.engram_columns() * c.engram_head_dim, workspace_bytes_));
    engram_.push_back(p);
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
