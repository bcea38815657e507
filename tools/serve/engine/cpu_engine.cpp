#include "tools/serve/engine/cpu_engine.h"

#include <algorithm>
#include <string>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/serve/engine/step_check.h"

namespace dsf::serve {
namespace {

// What this engine needs beyond a configuration that parsed.
Result<void> check_config(const model::Config& c, bool fake_quant, const std::string& subject) {
  if (fake_quant && (c.head_dim % 32 != 0 || c.index_head_dim % 32 != 0))
    return fail(Code::kContent, subject, "head_dim and index_head_dim must be multiples of 32 for the cache formats");
  const std::vector<model::LayerRole> roles = model::layer_roles(c);
  for (size_t i = 0; i < roles.size(); ++i) {
    const model::LayerRole& r = roles[i];
    if (r.ratio == 0) continue;
    if (roles[static_cast<size_t>(r.kv_source)].ratio != r.ratio)
      return fail(Code::kContent, subject,
                  "layer " + std::to_string(i) + " and its kv source layer have different compress_ratios");
    if (r.candidate_limited && r.kv_source != roles[static_cast<size_t>(c.candidate_source_layer_id)].kv_source)
      return fail(Code::kContent, subject,
                  "layer " + std::to_string(i) + " is limited to candidate blocks of another kv source");
  }
  return {};
}

EngineLimits make_limits(const CpuEngineOptions& o, const model::Config& c) {
  return {.max_model_len = o.max_model_len > 0 ? o.max_model_len : c.max_position_embeddings,
          .max_sessions = o.max_sessions,
          .max_step_tokens = o.max_step_tokens};
}

}  // namespace

Result<std::unique_ptr<CpuEngine>> CpuEngine::open(CpuEngineOptions o) {
  if (o.max_sessions < 1 || o.max_step_tokens < 1 || o.max_model_len < 0 || o.threads < 0)
    return fail(Code::kUsage, "cpu engine", "sessions, step tokens, model length and threads must be positive");
  std::unique_ptr<CpuEngine> e(new CpuEngine());
  e->model_dir_ = o.model_dir;
  if (o.config) {
    e->config_ = *o.config;
  } else {
    DSF_TRY(e->config_, model::load_config(o.model_dir / "config.json"));
  }
  const model::Config& c = e->config_;
  DSF_OK(check_config(c, o.fake_quant, (o.model_dir / "config.json").string()));
  e->limits_ = make_limits(o, c);
  DSF_TRY(const safetensors::Checkpoint checkpoint, safetensors::Checkpoint::open(o.model_dir));
  e->ranks_ = std::make_unique<Ranks>(c);
  if (o.comm != nullptr) {
    DSF_TRY(model::Split split, model::Split::create(c, o.comm->world(), stored_form(checkpoint)));
    e->ranks_ = std::make_unique<Ranks>(std::move(split), *o.comm);
  }
  const bool drafts = o.draft && checkpoint.contains("mtp.0.main_norm.weight");
  DSF_TRY(e->weights_, load_weights(c, checkpoint, drafts, e->ranks_->share()));
  if (!c.engram_layer_ids.empty()) {
    DSF_TRY(e->engram_, EngramRows::open(c, o.model_dir, o.engram_dir, std::move(o.token_map),
                                         {.rank = e->ranks_->rank(), .world = e->ranks_->world()}));
  }
  const int threads = o.threads > 0 ? o.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  e->forward_ = std::make_unique<Forward>(
      e->config_, e->weights_,
      ForwardOptions{.threads = threads, .ranks = e->ranks_.get(), .fake_quant = o.fake_quant});
  return e;
}

Result<SessionId> CpuEngine::open() {
  if (std::ssize(sessions_) >= limits_.max_sessions)
    return fail(Code::kBusy, "engine", "all " + std::to_string(limits_.max_sessions) + " sessions are open",
                "close one or raise the limit");
  const SessionId id = next_id_++;
  sessions_.emplace(id, forward_->make_session(id, limits_.max_step_tokens));
  return id;
}

void CpuEngine::close(SessionId session) { sessions_.erase(session); }

int64_t CpuEngine::length(SessionId session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? 0 : std::ssize(it->second.tokens);
}

Result<void> CpuEngine::check(std::span<const StepItem> items) const {
  return check_step(items, limits_, config_.vocab_size, [&](SessionId id) {
    const auto it = sessions_.find(id);
    return it == sessions_.end() ? std::nullopt : std::optional(static_cast<int64_t>(it->second.tokens.size()));
  });
}

Result<Step> CpuEngine::make_step(std::span<const StepItem> items) {
  Step step;
  step.engram.resize(engram_ ? static_cast<size_t>(engram_->n_layers()) : 0);
  for (const StepItem& item : items) {
    SessionState& session = sessions_.at(item.session);
    const int64_t start = std::ssize(session.tokens), n = std::ssize(item.tokens);
    step.items.push_back({.session = &session,
                          .row_begin = step.n_rows(),
                          .n_rows = n,
                          .start = start,
                          .selection = {},
                          .candidate_blocks = {}});
    step.tokens.insert(step.tokens.end(), item.tokens.begin(), item.tokens.end());
    for (int64_t i = 0; i < n; ++i) step.positions.push_back(start + i);
    if (engram_) {
      std::vector<int32_t> all = session.tokens;
      all.insert(all.end(), item.tokens.begin(), item.tokens.end());
      DSF_OK(engram_->append(all, n, step.engram));
    }
  }
  for (Vec& own : step.engram) {
    DSF_TRY(own, ranks_->join(std::move(own), step.n_rows(), &model::RankShare::columns, config_.engram_head_dim));
  }
  return step;
}

Result<StepOutput> CpuEngine::step(std::span<const StepItem> items) {
  DSF_OK(check(items));
  logits_.clear();
  if (items.empty()) return StepOutput{};
  DSF_TRY(Step step, make_step(items));
  DSF_OK(forward_->run(step));
  std::vector<int64_t> rows, choosing;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepRows& at = step.items[i];
    at.session->tokens.insert(at.session->tokens.end(), items[i].tokens.begin(), items[i].tokens.end());
    if (items[i].choose != nullptr) {
      for (int64_t r = at.n_rows - items[i].n_choose; r < at.n_rows; ++r) choosing.push_back(at.row_begin + r);
      continue;
    }
    const int64_t wanted = items[i].want_all_logits ? at.n_rows : items[i].want_logits ? 1 : 0;
    for (int64_t r = at.n_rows - wanted; r < at.n_rows; ++r) rows.push_back(at.row_begin + r);
  }
  StepOutput out;
  DSF_TRY(out.chosen, choose(step, choosing, items));
  DSF_TRY(logits_, forward_->logits(step, rows));
  out.logits = logits_, out.n_rows = std::ssize(rows);
  return out;
}

// The tokens after these rows, which are those of the items with choose.
Result<std::vector<int32_t>> CpuEngine::choose(Step& step, const std::vector<int64_t>& rows, std::span<const StepItem> items) {
  std::vector<int32_t> ids;
  if (rows.empty()) return ids;
  DSF_TRY(const Vec logits, forward_->logits(step, rows));
  for (const StepItem& item : items) {
    if (item.choose == nullptr) continue;
    const auto width = static_cast<size_t>(config_.vocab_size);
    ChoiceParams params = *item.choose;
    for (int64_t i = 0; i < item.n_choose; ++i, ++params.position) {
      ids.push_back(
          chooser_.choose(std::span<const float>(logits).subspan(ids.size() * width, width), params).value_or(-1));
    }
  }
  return ids;
}

Result<void> CpuEngine::truncate(SessionId session, int64_t length) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return fail(Code::kUsage, "session " + std::to_string(session), "is not open");
  std::vector<int32_t>& tokens = it->second.tokens;
  if (length < 0 || length > std::ssize(tokens) || std::ssize(tokens) - length > limits_.max_step_tokens)
    return fail(Code::kUsage, "session " + std::to_string(session),
                "cannot be cut to length " + std::to_string(length));
  tokens.resize(static_cast<size_t>(length));
  return {};
}

Result<DraftOutput> CpuEngine::draft(SessionId session, int32_t pending) {
  const std::string subject = "session " + std::to_string(session);
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return fail(Code::kUsage, subject, "is not open");
  if (!has_drafter())
    return fail(Code::kUsage, subject, "this checkpoint has no draft blocks, or they were not loaded");
  if (it->second.tokens.empty()) return fail(Code::kUsage, subject, "is empty: the first draft needs a context");
  if (pending < 0 || pending >= config_.vocab_size)
    return fail(Code::kUsage, subject, "token id " + std::to_string(pending) + " is outside the vocabulary");
  return forward_->draft(it->second, pending);
}

std::vector<std::pair<std::string, std::string>> CpuEngine::identity() const {
  std::vector<std::pair<std::string, std::string>> pairs = {{"backend", "cpu-f32"}, {"model_dir", model_dir_.string()}};
  if (engram_) {
    for (auto& p : engram_->identity()) pairs.push_back(std::move(p));
  }
  return pairs;
}

Result<std::unique_ptr<Engine>> open_cpu_engine(CpuEngineOptions options) {
  DSF_TRY(std::unique_ptr<Engine> engine, CpuEngine::open(std::move(options)));
  return engine;
}

}  // namespace dsf::serve
