#include "tools/bench/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "tools/bench/metrics.h"
#include "tools/bench/raw_file.h"
#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

Result<RatePlan::Item> trace_line(const json::Value& line, const std::string& subject) {
  const json::Cursor at(line, subject);
  RatePlan::Item item;
  DSF_TRY(const double at_ms, at.number_at("at_ms"));
  if (!(at_ms >= 0) || at_ms > 1e9) return at.fail("at_ms is out of range");
  item.at_ns = static_cast<int64_t>(at_ms * 1e6);
  DSF_TRY(item.prompt, at.string_or("prompt", ""));
  DSF_TRY(item.output_tokens, at.integer_or("output_tokens", 0, 0, 1'000'000));
  return item;
}

// Releases of the measured requests of an earlier run, from the first one on.
Result<void> from_raw(RatePlan& plan) {
  DSF_TRY(const RawFile raw, read_raw(plan.trace_path));
  for (size_t i = 0; i < raw.records.size(); ++i) {
    const json::Value* type = raw.records[i].find("type");
    if (type == nullptr || !type->is_string() || type->as_string() != "request") continue;
    DSF_TRY(const Request r, request_from_json(raw.records[i], plan.trace_path + ":" + std::to_string(i + 1)));
    if (!r.warmup && r.t.release) plan.items.push_back({*r.t.release, {}, r.max_tokens});
  }
  return {};
}

// 53 bits to (0,1]. The standard's distributions differ between libraries; a schedule must not.
double uniform(std::mt19937_64& random) { return (static_cast<double>(random() >> 11) + 1) * 0x1p-53; }

// Gamma with mean shape, by Marsaglia and Tsang's method on Box and Muller's normals; below shape 1 by the power of a uniform.
double gamma_value(std::mt19937_64& random, double shape) {
  if (shape < 1) return gamma_value(random, shape + 1) * std::pow(uniform(random), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double normal = std::sqrt(-2 * std::log(uniform(random))) * std::cos(2 * std::numbers::pi * uniform(random));
    const double v = std::pow(1 + c * normal, 3);
    if (v > 0 && std::log(uniform(random)) < 0.5 * normal * normal + d - d * v + d * std::log(v)) return d * v;
  }
}

std::string cell(const std::optional<double>& v) { return format_number(v, 1); }

}  // namespace

void schedule_rate(RatePlan& plan, uint64_t seed) {
  std::mt19937_64 random(seed);
  double t_s = 0;
  for (int64_t i = 0; i < plan.requests; ++i) {
    plan.items.push_back({static_cast<int64_t>(t_s * 1e9), {}, 0});
    const double progress = plan.requests > 1 ? static_cast<double>(i) / static_cast<double>(plan.requests - 1) : 0;
    const double rate = plan.ramp_to > 0 ? plan.rate + (plan.ramp_to - plan.rate) * progress : plan.rate;
    const double gap = plan.kind == "poisson" ? -std::log(uniform(random)) : plan.kind == "gamma" ? gamma_value(random, plan.burstiness) / plan.burstiness : 1;
    t_s += gap / rate;
  }
}

Result<void> load_trace(RatePlan& plan) {
  DSF_TRY(const codec::Digest digest, codec::sha256_file(plan.trace_path));
  plan.trace_sha256 = digest.hex();
  if (plan.trace_path.ends_with(".zst")) {
    DSF_OK(from_raw(plan));
  } else {
    DSF_TRY(const std::string text, io::read_text(plan.trace_path));
    DSF_TRY(const std::vector<json::Value> lines, json::parse_lines(text, plan.trace_path));
    for (size_t i = 0; i < lines.size(); ++i) {
      DSF_TRY(RatePlan::Item item, trace_line(lines[i], plan.trace_path + ":" + std::to_string(i + 1)));
      plan.items.push_back(std::move(item));
    }
  }
  if (plan.items.empty()) return fail(Code::kUsage, plan.trace_path, "the trace holds no request", "each line is {\"at_ms\": N}");
  std::stable_sort(plan.items.begin(), plan.items.end(), [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
  const int64_t first = plan.items.front().at_ns;
  for (auto& item : plan.items) item.at_ns -= first;
  return {};
}

std::string rate_table(const RunData& data) {
  std::vector<double> ttft, from_schedule, lag, tpot, e2e;
  std::vector<const Request*> all;
  for (const auto& r : data.requests) {
    all.push_back(&r);
    if (r.t.release && r.t.scheduled) lag.push_back(static_cast<double>(*r.t.release - *r.t.scheduled) / 1e6);
    if (!r.ok()) continue;
    const RequestMetrics m = request_metrics(r);
    if (m.ttft_ms) ttft.push_back(*m.ttft_ms);
    if (m.tpot_ms) tpot.push_back(*m.tpot_ms);
    if (m.e2e_ms) e2e.push_back(*m.e2e_ms);
    if (r.t.first_token && r.t.scheduled) from_schedule.push_back(static_cast<double>(*r.t.first_token - *r.t.scheduled) / 1e6);
  }
  const LevelMetrics m = level_metrics(all);
  std::string out = "# " + data.run.find("label")->as_string() + ": open loop\n\n";
  out += std::to_string(m.ok) + " of " + std::to_string(all.size()) + " requests ok, " + cell(m.request_rate) + " requests/s, " + cell(m.total_token_rate) +
         " tokens/s in and out.";
  if (const auto steady = steady_window(all, 1, 0.1)) {
    out += " " + cell(steady->rate()) + " output tokens/s in the steady window (some stream live, a tenth cut off both ends).";
  }
  out += "\n\n| | min | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|\n";
  const auto row = [&](const char* name, const std::vector<double>& v) {
    out += std::string("| ") + name + " | " + cell(min_of(v)) + " | " + cell(quantile(v, 0.5)) + " | " + cell(quantile(v, 0.9)) + " | " +
           cell(quantile(v, 0.99)) + " | " + cell(max_of(v)) + " |\n";
  };
  row("TTFT ms, from release", ttft);
  row("TTFT ms, from schedule", from_schedule);
  row("release lag ms", lag);
  row("TPOT ms", tpot);
  row("latency to the last token ms", e2e);
  return out + "\nA quantile is printed only when the sample is large enough for it.\n";
}

}  // namespace dsf::bench
