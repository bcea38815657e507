// CSA2 attention of one backbone layer: window rows for every layer, compressed rows and index keys at KV sources,
// selections at index sources, then one softmax over both lists. Source: model.md section 4.
#include <algorithm>
#include <cmath>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/kv_compress/kv_compress.h"
#include "tools/serve/engine/forward.h"

namespace dsf::serve {

Result<Vec> Forward::attention(Step& step, int64_t layer, const Vec& x) {
  const model::LayerRole& role = roles_[static_cast<size_t>(layer)];
  const AttentionWeights& w = weights_.layers[static_cast<size_t>(layer)].attn;
  const Vec& freq = frequencies(role.ratio);

  const Query q = project_query(w, x, step.positions, freq);
  const Vec kv = window_rows(w, x, step.positions, freq);
  for (StepRows& item : step.items) {
    const int64_t hd = config_.head_dim;
    item.session->window[static_cast<size_t>(layer)].store(
        item.start,
        std::span(kv).subspan(static_cast<size_t>(item.row_begin * hd), static_cast<size_t>(item.n_rows * hd)));
  }
  if (role.owns_kv) compress(step, layer, x);
  if (role.owns_index) select(step, layer, x, q.lora);
  return output_projection(w, attend(step, layer, q.heads), step.positions, freq);
}

Forward::Query Forward::project_query(const AttentionWeights& w, const Vec& x, std::span<const int64_t> positions,
                                      const Vec& freq) {
  Query q;
  q.lora = linear(x, w.wq_a);
  ops_.rmsnorm(q.lora, w.q_norm);
  q.heads = linear(q.lora, w.wq_b);
  if (heads_ > 0) ops_.rope(q.heads, positions, heads_, freq);
  return q;
}

Vec Forward::window_rows(const AttentionWeights& w, const Vec& x, std::span<const int64_t> positions, const Vec& freq) {
  Vec kv = linear(x, w.wkv);
  ops_.rmsnorm(kv, w.kv_norm);
  ops_.rope(kv, positions, 1, freq);
  quantise(kv, ops::FakeQuant::kWindow);
  return kv;
}

void Forward::compress(Step& step, int64_t layer, const Vec& x) {
  const CompressorWeights& w = *weights_.layers[static_cast<size_t>(layer)].compressor;
  const int64_t ratio = roles_[static_cast<size_t>(layer)].ratio, hd = config_.head_dim;
  const Vec value = linear(x, w.wkv);
  const Vec gate = ratio > 1 ? linear(x, w.wgate) : Vec();
  for (StepRows& item : step.items) {
    SourceCache& cache = item.session->sources[static_cast<size_t>(layer)];
    const auto first = static_cast<size_t>(item.row_begin * hd), count = static_cast<size_t>(item.n_rows * hd);
    cache.value.store(item.start, std::span(value).subspan(first, count));
    if (ratio > 1) cache.gate.store(item.start, std::span(gate).subspan(first, count));
    const int64_t open = item.start / ratio, closed = (item.start + item.n_rows) / ratio;
    append_groups(cache, w, ratio, open, closed - open);
  }
}

void Forward::append_groups(SourceCache& cache, const CompressorWeights& w, int64_t ratio, int64_t first,
                            int64_t n_groups) {
  const int64_t hd = config_.head_dim;
  Vec latent(static_cast<size_t>(n_groups * hd));
  ops::kv_compress_ref({.value = cache.value.values.data(),
                        .gate = ratio > 1 ? cache.gate.values.data() : nullptr,
                        .norm = w.norm.data(),
                        .latent = latent.data(),
                        .first_group = first,
                        .n_groups = n_groups,
                        .ratio = ratio,
                        .ring_rows = cache.value.rows,
                        .dim = hd,
                        .eps = static_cast<float>(config_.rms_norm_eps)});
  std::vector<int64_t> positions(static_cast<size_t>(n_groups));
  for (int64_t g = 0; g < n_groups; ++g) positions[static_cast<size_t>(g)] = (first + g) * ratio;
  const Vec& freq = frequencies(ratio);

  Vec key = linear(latent, w.index_wk);  // from the latent before its rotation and quantisation
  ops_.rmsnorm(key, w.index_k_norm);
  ops_.rope(key, positions, 1, freq);
  quantise(key, ops::FakeQuant::kIndex);

  ops_.rope(latent, positions, 1, freq);
  quantise(latent, ops::FakeQuant::kCompressed);

  // Cut first: a session that was shortened has stale groups behind this one.
  cache.rows.resize(static_cast<size_t>(first * hd));
  cache.rows.insert(cache.rows.end(), latent.begin(), latent.end());
  cache.index_keys.resize(static_cast<size_t>(first * config_.index_head_dim));
  cache.index_keys.insert(cache.index_keys.end(), key.begin(), key.end());
}

void Forward::select(Step& step, int64_t layer, const Vec& x, const Vec& lora) {
  const IndexerWeights& w = *weights_.layers[static_cast<size_t>(layer)].indexer;
  const model::LayerRole& role = roles_[static_cast<size_t>(layer)];
  Vec query = linear(lora, w.wq_b);
  ops_.rope(query, step.positions, config_.index_n_heads, frequencies(role.ratio));
  quantise(query, ops::FakeQuant::kIndex);
  Vec weight = linear(x, w.weights_proj);
  const float scale = 1.0f / (std::sqrt(static_cast<float>(config_.index_head_dim)) *
                              std::sqrt(static_cast<float>(config_.index_n_heads)));
  for (float& v : weight) v *= scale;
  for (StepRows& item : step.items) {
    select_item(item, layer, item.session->sources[static_cast<size_t>(role.kv_source)], role.ratio, query, weight);
    if (!trace.ids) continue;
    trace.ids("topk", layer, item.row_begin, item.selection, item.n_rows);
    if (role.candidate_source) trace.ids("candidate_blocks", layer, item.row_begin, item.candidate_blocks, item.n_rows);
  }
}

void Forward::select_item(StepRows& item, int64_t layer, const SourceCache& cache, int64_t ratio, const Vec& query,
                          const Vec& weight) {
  const model::LayerRole& role = roles_[static_cast<size_t>(layer)];
  const int64_t heads = config_.index_n_heads, dim = config_.index_head_dim, k = config_.index_topk,
                blocks = config_.candidate_topk_blocks;
  const int64_t n_keys = std::ssize(cache.index_keys) / dim;
  item.selection.assign(static_cast<size_t>(item.n_rows * k), -1);
  if (role.candidate_source) item.candidate_blocks.assign(static_cast<size_t>(item.n_rows * blocks), -1);
  DSF_CHECK(!role.candidate_limited || std::ssize(item.candidate_blocks) == item.n_rows * blocks,
            "candidate blocks of this step");
  ops_.pool().for_range(item.n_rows, 1, [&](int64_t begin, int64_t end) {
    Vec score(static_cast<size_t>(n_keys));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = item.row_begin + i, visible = (item.start + i + 1) / ratio;
      int32_t* block =
          role.candidate_source || role.candidate_limited ? item.candidate_blocks.data() + i * blocks : nullptr;
      ops::index_score_ref({.q = query.data() + row * heads * dim,
                            .weight = weight.data() + row * heads,
                            .keys = cache.index_keys.data(),
                            .visible = &visible,
                            .score = score.data(),
                            .n_rows = 1,
                            .n_heads = heads,
                            .dim = dim,
                            .n_keys = n_keys});
      if (role.candidate_source) {
        ops::candidate_blocks_ref({.score = score.data(),
                                   .visible = &visible,
                                   .blocks = block,
                                   .n_rows = 1,
                                   .n_keys = n_keys,
                                   .block_size = config_.candidate_block_size,
                                   .max_blocks = blocks});
      }
      ops::topk_ref({.score = score.data(),
                     .blocks = role.candidate_limited ? block : nullptr,
                     .selection = item.selection.data() + i * k,
                     .n_rows = 1,
                     .n_keys = n_keys,
                     .k = k,
                     .block_size = config_.candidate_block_size,
                     .max_blocks = blocks});
    }
  });
}

Vec Forward::attend(Step& step, int64_t layer, const Vec& q) {
  const model::LayerRole& role = roles_[static_cast<size_t>(layer)];
  const int64_t row = heads_ * config_.head_dim;
  Vec out(q.size());
  if (heads_ == 0) return out;
  for (const StepRows& item : step.items) {
    std::vector<int64_t> begin(static_cast<size_t>(item.n_rows)), end(begin.size());
    for (int64_t i = 0; i < item.n_rows; ++i) {
      end[static_cast<size_t>(i)] = item.start + i + 1;
      begin[static_cast<size_t>(i)] = std::max<int64_t>(0, item.start + i + 1 - config_.sliding_window);
    }
    const Ring& window = item.session->window[static_cast<size_t>(layer)];
    const bool compressed = role.ratio > 0;
    ops_.attention(
        {.q = q.data() + item.row_begin * row,
         .window = window.values.data(),
         .window_begin = begin.data(),
         .window_end = end.data(),
         .rows = compressed ? item.session->sources[static_cast<size_t>(role.kv_source)].rows.data() : nullptr,
         .selection = compressed ? item.selection.data() : nullptr,
         .sink = weights_.layers[static_cast<size_t>(layer)].attn.sink.data(),
         .out = out.data() + item.row_begin * row,
         .n_rows = item.n_rows,
         .n_heads = heads_,
         .head_dim = config_.head_dim,
         .ring_rows = window.rows,
         .n_selected = compressed ? config_.index_topk : 0,
         .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim))});
  }
  return out;
}

Result<Vec> Forward::output_projection(const AttentionWeights& w, Vec o, std::span<const int64_t> positions,
                                       const Vec& freq) {
  Vec y = w.wo_a.empty() ? Vec(positions.size() * static_cast<size_t>(config_.hidden_size))
                         : project_groups(w, std::move(o), positions, freq);
  DSF_OK(ranks_.sum(y));
  return y;
}

Vec Forward::project_groups(const AttentionWeights& w, Vec o, std::span<const int64_t> positions, const Vec& freq) {
  const int64_t n = std::ssize(positions), row = heads_ * config_.head_dim;
  ops_.rope(o, positions, heads_, freq, /*inverse=*/true);
  const int64_t groups = std::ssize(w.wo_a), in = row / groups, out = config_.o_lora_rank;
  Vec z(static_cast<size_t>(n * groups * out));
  for (int64_t g = 0; g < groups; ++g) {
    ops_.linear_into(o.data() + g * in, row, n, w.wo_a[static_cast<size_t>(g)].w, out, in, z.data() + g * out,
                     groups * out);
  }
  return linear(z, w.wo_b);
}

}  // namespace dsf::serve
