// CSA2 on the device: queries, window rows, compressed rows, selection, attention, output projection.
#include <algorithm>
#include <cmath>

#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"
#include "tools/serve/backends/cuda/launch_cache.h"

namespace dsf::serve::cuda {

const float* CudaForward::frequencies(int64_t ratio) const { return ratio == 0 ? window_freq_ : compressed_freq_; }

Result<void> CudaForward::rope(float* x, const int64_t* positions, int64_t heads, int64_t width, int64_t ratio) {
  return ops::rope_cuda({.x = x,
                         .positions = positions,
                         .freq = frequencies(ratio),
                         .n_rows = n_,
                         .n_heads = heads,
                         .head_dim = width,
                         .rope_dim = config_.qk_rope_head_dim},
                        raw(stream_));
}

Result<void> CudaForward::quantise(float* x, int64_t n, ops::FakeQuant format) {
  return options_.fake_quant ? ops::fake_quant_cuda({x, n, format}, raw(stream_)) : Result<void>{};
}

// Rows of the step into a cache, in its format.
Result<void> CudaForward::store(float* x, const int64_t* place, const Cache& to, int64_t dim, ops::FakeQuant format) {
  if (to.packed != nullptr) {
    return ops::pack_rows_cuda({.from = x, .place = place, .to = to.packed, .n_rows = n_, .dim = dim, .format = format},
                               raw(stream_));
  }
  DSF_OK(quantise(x, n_ * dim, format));
  return ops::scatter_rows_cuda(x, place, to.f32, n_, dim, raw(stream_));
}

Result<void> CudaForward::attention(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::LayerRole& role = roles_[static_cast<size_t>(index)];
  const model::Config& c = config_;
  // Launches of one input together; what only sources have is empty elsewhere and left out.
  DSF_OK(linears(h_,
                 {{&w.wq_a, lora_, w.wq_a.out},
                  {&w.wkv, kv_, w.wkv.out},
                  {&w.compress_wkv, latent_, w.compress_wkv.out},
                  {&w.compress_wgate, gate_, w.compress_wgate.out}},
                 n_));
  const auto eps = static_cast<float>(c.rms_norm_eps);
  const ops::NormRows norms[] = {
      {.norm = {.x = lora_, .w = w.q_norm, .y = lora_, .n_rows = n_, .dim = c.q_lora_rank, .eps = eps}},
      {.norm = {.x = kv_, .w = w.kv_norm, .y = kv_, .n_rows = n_, .dim = c.head_dim, .eps = eps},
       .positions = device_.positions,
       .freq = frequencies(role.ratio),
       .rope_dim = c.qk_rope_head_dim}};
  DSF_OK(ops::norm_rows_cuda(norms, raw(stream_)));
  DSF_OK(linears(lora_, {{&w.wq_b, q_, w.wq_b.out}, {&w.index_wq_b, index_q_, w.index_wq_b.out}}, n_));
  DSF_OK(rope(q_, device_.positions, heads_, c.head_dim, role.ratio));

  DSF_OK(store(kv_, device_.window_place, window_[static_cast<size_t>(index)], c.head_dim, ops::FakeQuant::kWindow));

  if (role.owns_kv) DSF_OK(compress(index));
  if (role.owns_index) DSF_OK(select(index));
  DSF_OK(attend(index));
  DSF_OK(output_groups(w));
  DSF_OK(linear(z_, w.wo_b, y_, n_));
  return sum_ranks(y_);
}

// Projections (attention() left them in latent_ and gate_) into the rings, then for every row that closes a group: its
// latent, its index key (from the latent as it is), and the rotated, quantised row.
Result<void> CudaForward::compress(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t ratio = roles_[static_cast<size_t>(index)].ratio;
  const StepBlock::PerRatio& at = device_.ratio[static_cast<size_t>(ratio)];
  Source& src = sources_[static_cast<size_t>(index)];
  DSF_OK(ops::scatter_rows_cuda(latent_, device_.window_place, src.value, n_, c.head_dim, raw(stream_)));
  if (ratio > 1) {
    DSF_OK(ops::scatter_rows_cuda(gate_, device_.window_place, src.gate, n_, c.head_dim, raw(stream_)));
  }
  DSF_OK(ops::kv_compress_rows_cuda({.value = src.value,
                                     .gate = src.gate,
                                     .norm = w.compress_norm,
                                     .latent = latent_,
                                     .first_position = at.first_position,
                                     .ring_offset = device_.window_offset,
                                     .n_rows = n_,
                                     .ratio = ratio,
                                     .ring_rows = ring_rows_,
                                     .dim = c.head_dim,
                                     .eps = static_cast<float>(c.rms_norm_eps)},
                                    raw(stream_)));
  DSF_OK(linear(latent_, w.index_wk, key_, n_));
  const ops::NormRows norm{.norm = {.x = key_,
                                    .w = w.index_k_norm,
                                    .y = key_,
                                    .n_rows = n_,
                                    .dim = c.index_head_dim,
                                    .eps = static_cast<float>(c.rms_norm_eps)},
                           .positions = at.first_position,
                           .freq = frequencies(ratio),
                           .rope_dim = c.qk_rope_head_dim};
  DSF_OK(ops::norm_rows_cuda({&norm, 1}, raw(stream_)));
  DSF_OK(store(key_, at.group_place, src.keys, c.index_head_dim, ops::FakeQuant::kIndex));
  DSF_OK(rope(latent_, at.first_position, 1, c.head_dim, ratio));
  return store(latent_, at.group_place, src.rows, c.head_dim, ops::FakeQuant::kCompressed);
}

Result<void> CudaForward::select(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::LayerRole& role = roles_[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const StepBlock::PerRatio& at = device_.ratio[static_cast<size_t>(role.ratio)];
  DSF_OK(rope(index_q_, device_.positions, c.index_n_heads, c.index_head_dim, role.ratio));
  DSF_OK(quantise(index_q_, n_ * c.index_n_heads * c.index_head_dim, ops::FakeQuant::kIndex));
  DSF_OK(linear(h_, w.index_weights, index_w_, n_));

  const Source& src = sources_[static_cast<size_t>(role.kv_source)];
  // A captured step serves every length; it has few rows, so the widest scores fit.
  const int64_t seen = n_ <= kLargestBucket ? src.max_groups : std::max<int64_t>(longest_ / role.ratio, 1);
  const int64_t n_keys = role.candidate_limited ? c.candidate_topk_blocks * c.candidate_block_size : seen;
  int64_t piece = std::max<int64_t>(kPieceFloats / n_keys, 1);
  if (ops::select_workspace(1, n_keys, c.index_topk) > 0) piece = std::min(piece, kSelectRows);
  for (int64_t r = 0; r < n_; r += piece) DSF_OK(select_piece(role, src, at, r, std::min(piece, n_ - r), n_keys));
  DSF_OK(report_ids("topk", index, selection_, c.index_topk));
  return role.candidate_source ? report_ids("candidate_blocks", index, blocks_, c.candidate_topk_blocks)
                               : Result<void>{};
}

// Rows r .. r + count - 1. n_keys: the width of their scores.
Result<void> CudaForward::select_piece(const model::LayerRole& role, const Source& src, const StepBlock::PerRatio& at,
                                       int64_t r, int64_t count, int64_t n_keys) {
  const model::Config& c = config_;
  int32_t* const blocks = blocks_ + r * c.candidate_topk_blocks;
  const int32_t* const limit = role.candidate_limited ? blocks : nullptr;
  const ops::IndexRowsArgs scores{.q = index_q_ + r * c.index_n_heads * c.index_head_dim,
                                  .weight = index_w_ + r * c.index_n_heads,
                                  .keys = src.keys.f32,
                                  .keys_offset = at.group_offset + r,
                                  .visible = at.visible + r,
                                  .blocks = limit,
                                  .score = score_,
                                  .n_rows = count,
                                  .n_heads = c.index_n_heads,
                                  .dim = c.index_head_dim,
                                  .n_keys = n_keys,
                                  .block_size = c.candidate_block_size,
                                  .max_blocks = c.candidate_topk_blocks,
                                  .skip = score_skip_};
  DSF_OK(packed_caches_ ? ops::index_rows_packed_cuda(scores, src.keys.packed, raw(stream_))
                        : ops::index_rows_cuda(scores, raw(stream_)));
  if (role.candidate_source) {
    DSF_OK(ops::select_blocks_cuda({.score = score_,
                                    .visible = at.visible + r,
                                    .blocks = blocks,
                                    .n_rows = count,
                                    .n_keys = n_keys,
                                    .block_size = c.candidate_block_size,
                                    .max_blocks = c.candidate_topk_blocks},
                                   select_, raw(stream_)));
  }
  return ops::select_rows_cuda({.score = score_,
                                .visible = at.visible + r,
                                .blocks = limit,
                                .selection = selection_ + r * c.index_topk,
                                .n_rows = count,
                                .n_keys = n_keys,
                                .k = c.index_topk,
                                .block_size = c.candidate_block_size,
                                .max_blocks = c.candidate_topk_blocks},
                               select_, raw(stream_));
}

Result<void> CudaForward::attend(int64_t index) {
  const model::LayerRole& role = roles_[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t heads = heads_, row = heads * c.head_dim, selected = role.ratio > 0 ? c.index_topk : 0;
  const StepBlock::PerRatio& at = device_.ratio[static_cast<size_t>(std::max<int64_t>(role.ratio, 1))];
  const Cache& window = window_[static_cast<size_t>(index)];
  const Cache rows = role.ratio > 0 ? sources_[static_cast<size_t>(role.kv_source)].rows : Cache{};
  const int64_t piece = std::max<int64_t>(
      kPieceFloats / ops::sparse_attention_workspace(1, heads, c.head_dim, c.sliding_window, selected), 1);
  for (int64_t r = 0; r < n_; r += piece) {
    const ops::SparseAttentionArgs a{.q = q_ + r * row,
                                     .window = window.f32,
                                     .window_begin = device_.window_begin + r,
                                     .window_end = device_.window_end + r,
                                     .rows = rows.f32,
                                     .selection = selection_ + r * selected,
                                     .sink = weights_.layers[static_cast<size_t>(index)].sink,
                                     .out = attn_ + r * row,
                                     .n_rows = std::min(piece, n_ - r),
                                     .n_heads = heads,
                                     .head_dim = c.head_dim,
                                     .ring_rows = ring_rows_,
                                     .n_selected = selected,
                                     .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                                     .window_offset = device_.window_offset + r,
                                     .rows_offset = at.group_offset + r};
    const ops::OutputRotation back{device_.positions + r, frequencies(role.ratio), c.qk_rope_head_dim};
    DSF_OK(exact_rows_ ? ops::sparse_attention_mma_cuda(a, {window.packed, rows.packed}, c.sliding_window, partial_,
                                                        raw(stream_), back)
                       : ops::sparse_attention_cuda(a, c.sliding_window, partial_, raw(stream_), back));
  }
  return {};
}

}  // namespace dsf::serve::cuda
