// The DSpark drafter: context keys from the taps of every forward, and one greedy pass over the draft block.
// Source: serving.md sections 6.2 to 6.4.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/engine/forward.h"
#include "tools/serve/engine/run_block.h"

namespace dsf::serve {

void Forward::ingest_taps(Step& step) {
  const DraftWeights& d = *weights_.draft;
  report("main_hidden", -1, step.taps, step.n_rows());
  Vec x = linear(step.taps, d.main_proj);
  ops_.rmsnorm(x, d.main_norm);
  report("main_x", -1, x, step.n_rows());
  for (size_t stage = 0; stage < d.stages.size(); ++stage) {
    const Vec kv = window_rows(d.stages[stage].attn, x, step.positions, window_freq_);
    for (StepRows& item : step.items) {
      const int64_t hd = config_.head_dim;
      item.session->draft_window[stage].store(
          item.start,
          std::span(kv).subspan(static_cast<size_t>(item.row_begin * hd), static_cast<size_t>(item.n_rows * hd)));
    }
  }
}

// No causal mask inside the block: every slot sees the same window before the block, and all of the block's own keys.
Result<Vec> Forward::draft_attention(const SessionState& session, int64_t stage, const Vec& x,
                                     std::span<const int64_t> positions) {
  const AttentionWeights& w = weights_.draft->stages[static_cast<size_t>(stage)].attn;
  const Query q = project_query(w, x, positions, window_freq_);
  const Vec block = window_rows(w, x, positions, window_freq_);
  const int64_t n = std::ssize(positions), first = positions.front();
  const std::vector<int64_t> begin(positions.size(), std::max<int64_t>(0, first - config_.sliding_window)),
      end(positions.size(), first);
  std::vector<int32_t> selection(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) std::iota(selection.begin() + i * n, selection.begin() + (i + 1) * n, 0);
  const Ring& ring = session.draft_window[static_cast<size_t>(stage)];
  Vec out(q.heads.size());
  if (heads_ == 0) return output_projection(w, std::move(out), positions, window_freq_);
  ops_.attention({.q = q.heads.data(),
                  .window = ring.values.data(),
                  .window_begin = begin.data(),
                  .window_end = end.data(),
                  .rows = block.data(),
                  .selection = selection.data(),
                  .sink = w.sink.data(),
                  .out = out.data(),
                  .n_rows = n,
                  .n_heads = heads_,
                  .head_dim = config_.head_dim,
                  .ring_rows = ring.rows,
                  .n_selected = n,
                  .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim))});
  return output_projection(w, std::move(out), positions, window_freq_);
}

Result<DraftOutput> Forward::draft(const SessionState& session, int32_t pending) {
  DSF_CHECK(weights_.draft.has_value(), "the drafter's weights are not loaded");
  const DraftWeights& d = *weights_.draft;
  const int64_t n = config_.dspark_block_size, v = config_.vocab_size, dim = config_.hidden_size,
                rank = config_.dspark_markov_rank;
  std::vector<int32_t> block(static_cast<size_t>(n), static_cast<int32_t>(config_.dspark_noise_token_id));
  block[0] = pending;
  std::vector<int64_t> positions(block.size());
  std::iota(positions.begin(), positions.end(), std::ssize(session.tokens));

  Vec x, pre;
  embed(block, x, pre);
  for (int64_t stage = 0; stage < std::ssize(d.stages); ++stage) {
    DSF_OK(run_block(config_.num_hidden_layers + stage, d.stages[static_cast<size_t>(stage)], x, pre,
                     [&](const Vec& h) { return draft_attention(session, stage, h, positions); }));
  }
  const Vec hidden = ops_.collapse(x, pre);
  Vec normed = hidden;
  ops_.rmsnorm(normed, d.norm);

  DraftOutput out;
  DSF_TRY(out.logits, head(normed));
  int32_t previous = pending;
  for (int64_t i = 0; i < n; ++i) {  // each slot is biased by the token chosen before it
    const std::span<const float> markov =
        std::span(d.markov_embed.w).subspan(static_cast<size_t>(previous * rank), static_cast<size_t>(rank));
    const Vec bias = linear(markov, d.markov_head);
    const auto row = out.logits.begin() + i * v;
    std::transform(row, row + v, bias.begin(), row, std::plus<>());
    out.confidence.push_back(ops::dot(hidden.data() + i * dim, d.confidence.data(), dim) +
                             ops::dot(markov.data(), d.confidence.data() + dim, rank));
    previous = static_cast<int32_t>(std::max_element(row, row + v) - row);  // ties: the lower id
    out.ids.push_back(previous);
  }
  return out;
}

}  // namespace dsf::serve
