#include "tools/bench/session.h"

#include "tools/bench/metrics.h"
#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

std::string turn_row(const RunData& data, int64_t turn) {
  std::vector<const Request*> requests;
  double prompt = 0, cached = 0;
  bool counted = true;
  for (const auto& r : data.requests) {
    if (r.repeat != turn) continue;
    requests.push_back(&r);
    counted = counted && (!r.ok() || r.usage.cached.has_value());
    prompt += static_cast<double>(r.usage.prompt.value_or(0));
    cached += static_cast<double>(r.usage.cached.value_or(0));
  }
  const LevelMetrics m = level_metrics(requests);
  const std::optional<double> share = counted && prompt > 0 ? std::optional(cached / prompt * 100) : std::nullopt;
  return "| " + std::to_string(turn + 1) + " | " + format_number(prompt, 0) + " | " + (counted ? format_number(cached, 0) : "-") + " | " + format_number(share, 1) + " | " +
         format_number(min_of(m.ttft_ms), 1) + " / " + format_number(median(m.ttft_ms), 1) + " / " + format_number(max_of(m.ttft_ms), 1) + " | " + format_number(m.prefill, 1) + " | " +
         format_number(m.stream_median, 1) + " | " + std::to_string(m.ok) + "/" + std::to_string(requests.size()) + " |\n";
}

}  // namespace

std::string session_table(const RunData& data) {
  const json::Value& session = *data.run.find("session");
  const int64_t turns = session.find("turns")->to_i64().value_or(0), c = session.find("c")->to_i64().value_or(0);
  std::string out = "# " + data.run.find("label")->as_string() + ": " + std::to_string(c) + " conversations of " + std::to_string(turns) +
                    " turns\n\n| Turn | Prompt tokens | Cached tokens | Cached % | TTFT ms min / median / max | Prefill (input tok/s) | One stream tok/s | Requests ok |\n"
                    "|---|---|---|---|---|---|---|---|\n";
  for (int64_t turn = 0; turn < turns; ++turn) out += turn_row(data, turn);
  return out + "\nPrompt and cached tokens are sums over the conversations. Prefill counts cached tokens as input, as a caller sees it.\n";
}

}  // namespace dsf::bench
