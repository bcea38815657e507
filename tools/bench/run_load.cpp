// What is not the matrix: requests by the clock, and conversations.
#include <algorithm>

#include "dsf/cli/signals.h"
#include "tools/bench/runner.h"

namespace dsf::bench {

namespace {
constexpr int64_t kLaterTurnLines = 2;  // turns after the first ask something short about a long context
}

// Requests at given times, all in one level (bench.md 5, open loop).
Result<void> Runner::run_rate() {
  const Settings& s = plan_.settings;
  LevelRecord record;
  record.phase = "rate";
  record.thinking = s.thinkings.front();
  std::vector<Job> jobs;
  int64_t slot = 0;
  for (const auto& item : plan_.rate.items) {
    Job job;
    job.planned.key = {s.seed, s.input_lines, "rate", record.thinking, 1, 0, slot, s.prompts.key_style()};
    job.planned.prompt = item.prompt.empty() ? s.prompts.make(job.planned.key, slot) : Prompt{item.prompt, {}};
    job.max_tokens = item.output_tokens > 0 ? item.output_tokens : s.output_tokens;
    job.at_ns = item.at_ns;
    jobs.push_back(std::move(job));
    ++slot;
  }
  DSF_TRY(const Measured measured, measure(jobs, record, std::min(jobs.size(), static_cast<size_t>(plan_.rate.max_connections))));
  done_ += static_cast<int64_t>(measured.requests.size());
  ok_ += static_cast<int64_t>(measured.requests.size()) - measured.failed;
  return {};
}

// C conversations side by side: a long first turn, then short ones, each sent with everything said before. One level a turn.
Result<void> Runner::run_sessions() {
  const Settings& s = plan_.settings;
  const int64_t c = s.levels.back();
  const std::string& thinking = s.thinkings.front();
  std::vector<json::Array> talk(static_cast<size_t>(c));
  for (int64_t turn = 0; turn < plan_.turns && !cli::stop_requested(); ++turn) {
    LevelRecord record;
    record.phase = "session";
    record.thinking = thinking;
    record.repeat = turn;
    record.c = c;
    std::vector<Job> jobs;
    for (int64_t slot = 0; slot < c; ++slot) {
      Job job;
      job.planned.key = {s.seed, turn == 0 ? s.input_lines : std::min(s.input_lines, kLaterTurnLines), "session", thinking, c, turn, slot};
      json::Array& messages = talk[static_cast<size_t>(slot)];
      messages.push_back(json::Object{{"role", "user"}, {"content", prompt_text(job.planned.key)}});
      job.planned.prompt.messages = messages;
      job.max_tokens = s.output_tokens;
      jobs.push_back(std::move(job));
    }
    DSF_TRY(const Measured measured, measure(jobs, record, static_cast<size_t>(c)));
    for (size_t i = 0; i < talk.size(); ++i) talk[i].push_back(json::Object{{"role", "assistant"}, {"content", clean_utf8(measured.texts[i].content)}});
    done_ += static_cast<int64_t>(measured.requests.size());
    ok_ += static_cast<int64_t>(measured.requests.size()) - measured.failed;
    cool_down(measured.failed > 0);
  }
  return {};
}

}  // namespace dsf::bench
