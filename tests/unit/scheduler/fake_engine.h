#pragma once
// An engine without a model, for tests: logits are a hash of the whole context, or point at the token a script wants
// next.
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "dsf/base/check.h"
#include "tools/serve/engine/engine.h"

namespace dsf::test {

class FakeEngine final : public serve::Engine {
 public:
  struct Options {
    int64_t vocab_size = 64;
    int64_t max_model_len = 256;
    int max_sessions = 8;
    int64_t max_step_tokens = 32;
    int32_t eos = 1;
    // Next token after this context, or -1 for hashed logits.
    std::function<int32_t(std::span<const int32_t>)> script;
    // Called with the items of every step before it runs; an Error fails the step.
    std::function<Result<void>(std::span<const serve::StepItem>)> on_step;
    bool chooses = false;  // tokens instead of logits on request
    // Drafts after a context that ends in the pending token; none: there is no drafter.
    std::function<std::vector<int32_t>(std::vector<int32_t>)> draft;
    std::vector<std::pair<std::string, std::string>> identity{{"checkpoint_sha256", std::string(64, 'a')}};
  };

  explicit FakeEngine(Options options) : options_(std::move(options)) {
    config_.vocab_size = options_.vocab_size;
    config_.eos_token_id = options_.eos;
    limits_ = {options_.max_model_len, options_.max_sessions, options_.max_step_tokens};
  }

  const model::Config& config() const override { return config_; }
  const serve::EngineLimits& limits() const override { return limits_; }
  Result<serve::SessionId> open() override {
    if (static_cast<int>(sessions_.size()) >= limits_.max_sessions)
      return fail(Code::kBusy, "engine", "no free session");
    sessions_[next_id_] = {};
    return next_id_++;
  }
  void close(serve::SessionId session) override { DSF_CHECK(sessions_.erase(session) == 1, "unknown session closed"); }
  int64_t length(serve::SessionId session) const override { return static_cast<int64_t>(sessions_.at(session).size()); }
  std::vector<std::pair<std::string, std::string>> identity() const override { return options_.identity; }

  bool chooses() const override { return options_.chooses; }
  bool has_drafter() const override { return options_.draft != nullptr; }
  Result<serve::DraftOutput> draft(serve::SessionId session, int32_t pending) override {
    std::vector<int32_t> context = sessions_.at(session);
    context.push_back(pending);
    return serve::DraftOutput{options_.draft(std::move(context)), {}, {}};
  }
  Result<void> truncate(serve::SessionId session, int64_t length) override {
    DSF_CHECK(length >= 0 && length <= this->length(session), "cut out of range");
    sessions_.at(session).resize(static_cast<size_t>(length));
    return {};
  }
  // The logits after a context.
  std::vector<float> logits_after(const std::vector<int32_t>& context) const {
    std::vector<float> row;
    append_row(context, row);
    return row;
  }

  Result<serve::StepOutput> step(std::span<const serve::StepItem> items) override {
    if (options_.on_step) DSF_OK(options_.on_step(items));
    int64_t total = 0;
    std::set<serve::SessionId> seen;
    logits_.clear();
    int64_t n_rows = 0;
    std::vector<int32_t> chosen;
    for (const auto& item : items) {
      total += static_cast<int64_t>(item.tokens.size());
      DSF_CHECK(!item.tokens.empty() && sessions_.count(item.session) == 1 && seen.insert(item.session).second,
                "malformed step");
      auto& context = sessions_[item.session];
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        DSF_CHECK(item.tokens[i] >= 0 && item.tokens[i] < config_.vocab_size, "token outside the vocabulary");
        context.push_back(item.tokens[i]);
        if (item.choose == nullptr && (item.want_all_logits || (item.want_logits && i + 1 == item.tokens.size()))) {
          append_row(context, logits_);
          ++n_rows;
        }
      }
      if (item.choose != nullptr) {
        DSF_CHECK(options_.chooses, "asked for a token");
        serve::ChoiceParams params = *item.choose;
        for (int64_t i = item.n_choose; i > 0; --i, ++params.position) {
          std::vector<float> row;
          append_row({context.begin(), context.end() - i + 1}, row);
          chosen.push_back(serve::Chooser().choose(row, params).value_or(-1));
        }
      }
      DSF_CHECK(static_cast<int64_t>(context.size()) <= limits_.max_model_len, "context too long");
    }
    DSF_CHECK(total <= limits_.max_step_tokens, "step too large");
    return serve::StepOutput{logits_, n_rows, chosen};
  }

  size_t open_sessions() const { return sessions_.size(); }

 private:
  void append_row(const std::vector<int32_t>& context, std::vector<float>& logits) const {
    const int32_t wanted = options_.script ? options_.script(context) : -1;
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int32_t id : context)
      hash = (hash ^ static_cast<uint64_t>(id)) * 0xBF58476D1CE4E5B9u, hash ^= hash >> 29;
    for (int64_t id = 0; id < config_.vocab_size; ++id) {
      uint64_t x = (hash ^ static_cast<uint64_t>(id)) * 0x94D049BB133111EBu;
      x ^= x >> 32;
      float logit = static_cast<float>(x % 1000) / 200.0F;
      if (wanted >= 0) logit = id == wanted ? 500.0F : -500.0F;
      logits.push_back(logit);
    }
  }

  Options options_;
  model::Config config_;
  serve::EngineLimits limits_;
  std::map<serve::SessionId, std::vector<int32_t>> sessions_;
  serve::SessionId next_id_ = 1;
  std::vector<float> logits_;
};

}  // namespace dsf::test
