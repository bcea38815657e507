// Passes of the matrix: warm-up, levels, attempts, and the token check after each repeat.
#include <algorithm>
#include <cstddef>

#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/bench/metrics.h"
#include "tools/bench/runner.h"

namespace dsf::bench {
namespace {

constexpr size_t kSteadyRuns = 3, kMostSteadyRuns = 10;
constexpr double kSteadyWithin = 0.03;

// Are the last values within a few per cent of each other?
bool settled(const std::vector<double>& values) {
  if (values.size() < kSteadyRuns) return false;
  const std::vector<double> last(values.end() - static_cast<std::ptrdiff_t>(kSteadyRuns), values.end());
  return *max_of(last) <= *min_of(last) * (1 + kSteadyWithin);
}

}  // namespace

Result<void> Runner::run_matrix() {
  for (const auto& thinking : plan_.settings.thinkings) {
    for (const auto& phase : plan_.settings.phases) {
      if (cli::stop_requested()) return {};
      DSF_OK(run_pass(phase, thinking));
    }
  }
  return {};
}

Result<void> Runner::run_pass(const std::string& phase, const std::string& thinking) {
  const Settings& s = plan_.settings;
  bool left = false;
  for (int64_t repeat = 0; repeat < s.repeats; ++repeat) {
    for (const int64_t c : s.levels) left = left || !before_.has(level_name(phase, thinking, repeat, c));
    left = left || !before_.checks.contains(level_name(phase, thinking, repeat, 0));
  }
  if (!left) return {};
  if (!plan_.target.flush_path.empty()) {
    const auto flushed = control_.post(control_.root() + plan_.target.flush_path, json::Value::object());
    if (!flushed || flushed->status / 100 != 2) cli::log(cli::Level::kWarn, "the server did not flush its cache", {{"path", plan_.target.flush_path}});
  }
  if (s.warmup != "none") DSF_OK(warm_up(phase, thinking));
  for (int64_t repeat = 0; repeat < s.repeats; ++repeat) {
    std::vector<Level> levels = plan_pass(s, phase, thinking, repeat);
    DSF_OK(fit_prompts(levels, thinking));
    reported_ = before_.prompt_tokens(level_name(phase, thinking, repeat, 0));
    for (const auto& level : levels) {
      if (cli::stop_requested()) return {};
      if (before_.has(level_name(phase, thinking, repeat, level.c))) continue;
      for (int64_t attempt = 0; attempt <= plan_.retry_level; ++attempt) {
        DSF_TRY(const Measured measured, run_level(level, phase, thinking, repeat, false, attempt));
        if (attempt == 0) {
          done_ += static_cast<int64_t>(measured.requests.size());
          ok_ += static_cast<int64_t>(measured.requests.size()) - measured.failed;
        }
        cool_down(measured.failed > 0);
        if (measured.failed == 0 || cli::stop_requested()) break;
      }
    }
    if (!cli::stop_requested()) DSF_OK(check_tokens(levels, phase, thinking, repeat));
  }
  return {};
}

Result<void> Runner::warm_up(const std::string& phase, const std::string& thinking) {
  const bool steady = plan_.settings.warmup == "steady";
  if (steady) DSF_OK(warm_until_steady(phase, thinking));
  for (const auto& level : plan_warmup(plan_.settings, thinking)) {
    if (cli::stop_requested()) return {};
    if (steady && level.c == 1) continue;
    DSF_TRY(const Measured measured, run_level(level, phase, thinking, 0, true, 0));
    cool_down(measured.failed > 0);
  }
  return {};
}

// C1 with a new prompt each time, until three values in a row agree: the decode rate, or the time to the first token.
Result<void> Runner::warm_until_steady(const std::string& phase, const std::string& thinking) {
  std::vector<double> values;
  for (int64_t i = 0; i < static_cast<int64_t>(kMostSteadyRuns) && !settled(values) && !cli::stop_requested(); ++i) {
    Level level = plan_warmup(plan_.settings, thinking).front();
    Planned& p = level.requests.front();
    p.key.repeat = i;
    p.prompt = {prompt_text(p.key), {}};
    DSF_TRY(const Measured measured, run_level(level, phase, thinking, i, true, 0));
    const RequestMetrics m = request_metrics(measured.requests.front());
    const auto value = phase == "prefill" ? m.ttft_ms : m.decode_ref;
    if (value) values.push_back(*value);
  }
  if (!settled(values)) cli::log(cli::Level::kWarn, "C1 did not settle within 3 % in the warm-up", {{"runs", std::to_string(values.size())}});
  return {};
}

Result<Runner::Measured> Runner::run_level(const Level& level, const std::string& phase, const std::string& thinking, int64_t repeat, bool warmup, int64_t attempt) {
  LevelRecord record;
  record.phase = phase;
  record.thinking = thinking;
  record.repeat = repeat;
  record.c = level.c;
  record.warmup = warmup;
  record.attempt = attempt;
  std::vector<Job> jobs;
  const bool closed_loop = static_cast<int64_t>(level.requests.size()) > level.c;
  for (const auto& p : level.requests) jobs.push_back({p, plan_.settings.max_tokens(phase), closed_loop ? std::optional<int64_t>(0) : std::nullopt});
  DSF_TRY(Measured measured, measure(jobs, record, static_cast<size_t>(level.c)));
  for (const auto& r : measured.requests) {
    if (!warmup && r.ok() && r.usage.prompt) reported_[{r.c, r.slot}] = *r.usage.prompt;
  }
  return measured;
}

// The number of words whose rendered prompt has exactly the wanted number of tokens, by bisection with the server's own tokenizer; the nearest
// below when no number of words hits it.
Result<void> Runner::fit_prompts(std::vector<Level>& levels, const std::string& thinking) {
  const int64_t want = plan_.settings.input_tokens;
  if (want <= 0) return {};
  for (auto& level : levels) {
    for (auto& p : level.requests) {
      int64_t low = 0, high = 2 * want;  // a word is one token or more
      while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        const auto n = control_.tokenize_chat({prompt_text_of_words(p.key, middle), {}}, thinking);
        if (!n) return fail(Code::kMissing, control_.root() + "/tokenize", "the server does not count the tokens of a chat", "use --input-lines instead of --input-tokens");
        *n <= want ? low = middle : high = middle - 1;
      }
      p.prompt = {prompt_text_of_words(p.key, low), {}};
      p.sha256 = sha256_of(p.prompt);
    }
  }
  return {};
}

// Prompt tokens as reported against the server's own tokenizer, once per prompt, after the pass (bench.md 2.7).
Result<void> Runner::check_tokens(const std::vector<Level>& levels, const std::string& phase, const std::string& thinking, int64_t repeat) {
  if (before_.checks.contains(level_name(phase, thinking, repeat, 0))) return {};
  TokenCheck check{phase, thinking, repeat, "unverified", "the server has no /tokenize for chats"};
  if (probe_.features.tokenize) compare_tokens(levels, thinking, check);
  DSF_OK(raw_->write(to_json(check)));
  return raw_->end_frame();
}

void Runner::compare_tokens(const std::vector<Level>& levels, const std::string& thinking, TokenCheck& check) {
  std::optional<int64_t> offset;
  bool constant = true;
  std::string example;
  for (const auto& level : levels) {
    for (const auto& p : level.requests) {
      const auto it = reported_.find({p.key.c, p.key.slot});
      if (it == reported_.end()) continue;
      const auto n = control_.tokenize_chat(p.prompt, thinking);
      if (!n) return;
      const int64_t difference = it->second - *n;
      if (!offset) offset = difference;
      if (difference != *offset) constant = false;
      if (difference != 0) example = "usage says " + std::to_string(it->second) + ", /tokenize " + std::to_string(*n) + " for " + p.key.text();
    }
  }
  if (!offset) return;
  check.result = !constant ? "count_mismatch" : *offset == 0 ? "verified" : "verified_offset";
  check.detail = example;
}

}  // namespace dsf::bench
