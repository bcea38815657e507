// The layer stack: streams, hyper-connections, Engram, experts, logits. Attention is in attention.cpp, the drafter in
// draft.cpp.
#include "tools/serve/engine/forward.h"

#include <algorithm>

#include "tools/serve/backends/ops/engram_gate/engram_gate.h"
#include "tools/serve/backends/ops/moe_route/moe_route.h"
#include "tools/serve/backends/ops/rope/rope.h"
#include "tools/serve/engine/run_block.h"

namespace dsf::serve {
namespace {

ops::YarnParams yarn(const model::YarnScaling& y) {
  return {.enabled = y.enabled,
          .factor = y.factor,
          .beta_fast = y.beta_fast,
          .beta_slow = y.beta_slow,
          .original_length = y.original_max_position_embeddings};
}

cpu::HyperShape hyper_shape(const model::Config& c) {
  return {.n_streams = c.hc_mult,
          .dim = c.hidden_size,
          .sinkhorn_iters = c.hc_sinkhorn_iters,
          .hc_eps = static_cast<float>(c.hc_eps),
          .norm_eps = static_cast<float>(c.rms_norm_eps)};
}

}  // namespace

void Ring::store(int64_t first, std::span<const float> v) {
  for (int64_t i = 0; i < std::ssize(v) / dim; ++i)
    std::copy_n(v.data() + i * dim, dim, values.data() + (first + i) % rows * dim);
}

Forward::Forward(const model::Config& config, const ModelWeights& weights, const ForwardOptions& options)
    : config_(config),
      weights_(weights),
      options_(options),
      roles_(model::layer_roles(config)),
      alone_(config),
      ranks_(options.ranks != nullptr ? *options.ranks : alone_),
      heads_(ranks_.share().heads.size()),
      window_freq_(ops::rope_frequencies(config.qk_rope_head_dim, config.rope_theta, {})),
      compressed_freq_(
          ops::rope_frequencies(config.qk_rope_head_dim, config.compress_rope_theta, yarn(config.rope_scaling))),
      ops_(options.threads, hyper_shape(config)) {}

SessionState Forward::make_session(SessionId id, int64_t max_step_tokens) const {
  // The compressor needs the open group's tokens beside a step's; its ratio is at most 2.
  const int64_t ring_rows = std::max<int64_t>(config_.sliding_window, 2) + max_step_tokens;
  SessionState s;
  s.id = id;
  s.sources.resize(roles_.size());
  for (size_t l = 0; l < roles_.size(); ++l) {
    s.window.emplace_back(ring_rows, config_.head_dim);
    if (!roles_[l].owns_kv) continue;
    s.sources[l].value = Ring(ring_rows, config_.head_dim);
    if (roles_[l].ratio > 1) s.sources[l].gate = Ring(ring_rows, config_.head_dim);
  }
  if (weights_.draft) s.draft_window.assign(weights_.draft->stages.size(), Ring(ring_rows, config_.head_dim));
  return s;
}

Result<void> Forward::run(Step& step) {
  embed(step.tokens, step.x, step.pre);
  const auto& targets = config_.dspark_target_layer_ids;
  if (weights_.draft)
    step.taps.assign(static_cast<size_t>(step.n_rows() * std::ssize(targets) * config_.hidden_size), 0.0f);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    if (trace.enter) trace.enter(layer, step.x, step.pre);
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    if (w.engram) apply_engram(step, layer);
    const auto target = std::find(targets.begin(), targets.end(), layer);
    if (weights_.draft && target != targets.end()) take_tap(step, target - targets.begin());
    DSF_OK(run_block(layer, w, step.x, step.pre, [&](const Vec& x) { return attention(step, layer, x); }));
  }
  if (weights_.draft) ingest_taps(step);
  return {};
}

Result<Vec> Forward::logits(const Step& step, std::span<const int64_t> rows) {
  const int64_t s = config_.hc_mult, d = config_.hidden_size;
  Vec x, pre;
  for (const int64_t r : rows) {
    x.insert(x.end(), step.x.begin() + r * s * d, step.x.begin() + (r + 1) * s * d);
    pre.insert(pre.end(), step.pre.begin() + r * s, step.pre.begin() + (r + 1) * s);
  }
  Vec h = ops_.collapse(x, pre);
  ops_.rmsnorm(h, weights_.norm);
  return head(h);
}

Result<Vec> Forward::head(const Vec& h) {
  return ranks_.join(linear(h, weights_.head), std::ssize(h) / config_.hidden_size, &model::RankShare::vocab);
}

void Forward::embed(std::span<const int32_t> tokens, Vec& x, Vec& pre) const {
  const int64_t s = config_.hc_mult, d = config_.hidden_size;
  x.clear();
  pre.assign(tokens.size() * static_cast<size_t>(s), 0.0f);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = weights_.embed.w.begin() + tokens[i] * d;
    for (int64_t k = 0; k < s; ++k) x.insert(x.end(), row, row + d);
    pre[i * static_cast<size_t>(s)] = 1.0f;  // the first attention sees stream 0
  }
}

void Forward::apply_engram(Step& step, int64_t layer) {
  const EngramWeights& w = *weights_.layers[static_cast<size_t>(layer)].engram;
  const int64_t s = config_.hc_mult, d = config_.hidden_size, n = step.n_rows();
  const Vec kv = linear(step.engram[static_cast<size_t>(roles_[static_cast<size_t>(layer)].engram)], w.wkv);
  ops_.pool().for_range(n, 1, [&](int64_t begin, int64_t end) {
    ops::engram_gate_ref({.kv = kv.data() + begin * (s + 1) * d,
                          .q_weight = w.q_weight.data(),
                          .k_weight = w.k_weight.data(),
                          .dead = nullptr,
                          .x = step.x.data() + begin * s * d,
                          .n_rows = end - begin,
                          .n_streams = s,
                          .dim = d,
                          .eps = static_cast<float>(config_.rms_norm_eps)});
  });
  report("engram_x", layer, step.x, n);
}

void Forward::take_tap(Step& step, int64_t target) {
  const int64_t d = config_.hidden_size, width = std::ssize(config_.dspark_target_layer_ids) * d;
  const Vec mean = ops_.stream_mean(step.x);
  for (int64_t r = 0; r < step.n_rows(); ++r)
    std::copy_n(mean.begin() + r * d, d, step.taps.begin() + r * width + target * d);
}

Result<Vec> Forward::moe(int64_t layer, const MoeWeights& w, const Vec& x) {
  const int64_t d = config_.hidden_size, n = std::ssize(x) / d, k = w.experts_per_token;
  std::vector<int32_t> ids(static_cast<size_t>(n * k));
  Vec weights(ids.size()), y(x.size());
  ops::moe_route_ref({.x = x.data(),
                      .gate = w.gate.w.data(),
                      .bias = w.bias.data(),
                      .ids = ids.data(),
                      .weights = weights.data(),
                      .n_rows = n,
                      .dim = d,
                      .n_experts = w.gate.out,
                      .k = k,
                      .temperature = static_cast<float>(config_.gate_temp),
                      .route_scale = static_cast<float>(config_.routed_scaling_factor),
                      .normalise = config_.norm_topk_prob});
  ops_.experts({.x = x.data(),
                .ids = ids.data(),
                .weights = weights.data(),
                .experts = w.expert_views.data(),
                .shared = w.shared_view.inter > 0 ? &w.shared_view : nullptr,
                .y = y.data(),
                .n_rows = n,
                .dim = d,
                .k = k,
                .limit = static_cast<float>(config_.swiglu_limit)});
  DSF_OK(ranks_.sum(y));
  if (trace.ids) trace.ids("expert_ids", layer, 0, ids, n);
  report("expert_weights", layer, weights, n);
  return y;
}

}  // namespace dsf::serve
