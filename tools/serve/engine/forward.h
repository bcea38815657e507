#pragma once
// Forward: the backbone as a list of ops over the rows of a step, and the drafter beside it.
//
// Borrows configuration and weights, which must outlive it; owns the thread pool. One thread. Sessions named by a step
// are written: their caches get the step's positions; the caller appends the tokens afterwards. Source: model.md
// sections 3 to 8.
#include <cstdint>
#include <span>
#include <vector>

#include "tools/serve/backends/cpu/cpu_ops.h"
#include "tools/serve/engine/ranks.h"
#include "tools/serve/engine/state.h"
#include "tools/serve/engine/trace.h"

namespace dsf::serve {

struct ForwardOptions {
  int threads = 1;
  const Ranks* ranks = nullptr;  // whose share the weights are, borrowed; nullptr: the whole model
  bool fake_quant = true;        // the cache formats of model.md 4.2 to 4.5
};

class Forward {
 public:
  Forward(const model::Config& config, const ModelWeights& weights, const ForwardOptions& options);

  // Caches of an empty session, for steps of at most max_step_tokens rows.
  SessionState make_session(SessionId id, int64_t max_step_tokens) const;

  // Runs all layers. step: tokens, positions, items and engram filled in; afterwards x and pre are those leaving the
  // last layer, the same bits on every rank. Errors: those of the ranks' communicator.
  Result<void> run(Step& step);
  // rows: rows of the step. [rows.size(), V] on every rank. Errors: as run().
  Result<Vec> logits(const Step& step, std::span<const int64_t> rows);
  // Greedy drafts after the pending token, which stands at position session.tokens.size(). Needs draft weights. Writes
  // nothing. Errors: as run().
  Result<DraftOutput> draft(const SessionState& session, int32_t pending);

  // See CpuOps::observe().
  void observe(ops::InputObserver* observer) { ops_.observe(observer); }

  Trace trace;

 private:
  struct Query {
    Vec lora;   // [n, q_lora], normed: also the indexer's input
    Vec heads;  // [n, H, hd], rotated
  };
  void embed(std::span<const int32_t> tokens, Vec& x, Vec& pre) const;
  template <class Attention>
  Result<void> run_block(int64_t layer, const LayerWeights& w, Vec& x, Vec& pre, Attention&& attention);
  void apply_engram(Step& step, int64_t layer);
  void take_tap(Step& step, int64_t target);
  Result<Vec> moe(int64_t layer, const MoeWeights& w, const Vec& x);
  Result<Vec> head(const Vec& h);

  Result<Vec> attention(Step& step, int64_t layer, const Vec& x);
  Query project_query(const AttentionWeights& w, const Vec& x, std::span<const int64_t> positions, const Vec& freq);
  Vec window_rows(const AttentionWeights& w, const Vec& x, std::span<const int64_t> positions, const Vec& freq);
  void compress(Step& step, int64_t layer, const Vec& x);
  void append_groups(SourceCache& cache, const CompressorWeights& w, int64_t ratio, int64_t first, int64_t n_groups);
  void select(Step& step, int64_t layer, const Vec& x, const Vec& lora);
  void select_item(StepRows& item, int64_t layer, const SourceCache& cache, int64_t ratio, const Vec& query,
                   const Vec& weight);
  Vec attend(Step& step, int64_t layer, const Vec& q);
  Vec project_groups(const AttentionWeights& w, Vec o, std::span<const int64_t> positions, const Vec& freq);
  // Summed over the ranks.
  Result<Vec> output_projection(const AttentionWeights& w, Vec o, std::span<const int64_t> positions, const Vec& freq);

  void ingest_taps(Step& step);
  Result<Vec> draft_attention(const SessionState& session, int64_t stage, const Vec& x,
                              std::span<const int64_t> positions);

  Vec linear(std::span<const float> x, const Linear& l) { return ops_.linear(x, l.w, l.out, l.in); }
  void quantise(Vec& x, ops::FakeQuant format) {
    if (options_.fake_quant) ops_.fake_quant(x, format);
  }
  const Vec& frequencies(int64_t ratio) const { return ratio == 0 ? window_freq_ : compressed_freq_; }
  void report(std::string_view what, int64_t layer, const Vec& v, int64_t n) const {
    if (trace.values) trace.values(what, layer, v, n);
  }

  const model::Config& config_;
  const ModelWeights& weights_;
  ForwardOptions options_;
  std::vector<model::LayerRole> roles_;
  const Ranks alone_;  // when no ranks are given
  const Ranks& ranks_;
  const int64_t heads_;                // this rank's
  Vec window_freq_, compressed_freq_;  // [qk_rope_head_dim / 2]
  cpu::CpuOps ops_;
};

}  // namespace dsf::serve
