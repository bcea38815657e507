#include "tools/bench/vectors.h"

#include "tools/bench/metrics.h"

namespace dsf::bench {
namespace {

using What = Expect::What;
using Requests = std::vector<Request>;
using Number = std::optional<double>;

LevelMetrics level(const Requests& requests) {
  std::vector<const Request*> pointers;
  for (const auto& r : requests) pointers.push_back(&r);
  return level_metrics(pointers);
}

// A number of the first stream, of one stream, of the level.
auto of_request(Number RequestMetrics::* member, size_t i = 0) {
  return [member, i](const Requests& r) { return request_metrics(r.at(i)).*member; };
}
auto of_level(Number LevelMetrics::* member) {
  return [member](const Requests& r) { return level(r).*member; };
}
auto statistic(Number value) {
  return [value](const Requests&) { return value; };
}

std::string last_events(int prompt, int n, int cached = 0) { return made::finish_event("length") + made::usage_event(prompt, n, cached) + "data: [DONE]\n\n"; }

// Content events of the given weights; finish, usage and [DONE] come with the last one.
VectorStream tokens(double release_ms, const std::vector<made::Token>& events, int prompt) {
  VectorStream out{release_ms, {}, 0};
  for (const auto& e : events) {
    out.pieces.push_back({e.at_ms, made::content_event("x", e.w)});
    out.max_tokens += e.w;
  }
  out.pieces.back().bytes += last_events(prompt, static_cast<int>(out.max_tokens));
  return out;
}

Vector vector_a() {
  Vector v{"A", {{0, made::vector_a(), 16}}, {}};
  v.expects = {{"TTFR ms", 120, What::kTime, 0, of_request(&RequestMetrics::ttfr_ms)},
               {"TTFT ms", 500, What::kTime, 0, of_request(&RequestMetrics::ttft_ms)},
               {"TTFO ms", 750, What::kTime, 0, of_request(&RequestMetrics::ttfo_ms)},
               {"latency ms", 750, What::kTime, 0, of_request(&RequestMetrics::e2e_ms)},
               {"d", 60, What::kRate, 250, of_request(&RequestMetrics::decode)},
               {"d_ref", 60, What::kRate, 250, of_request(&RequestMetrics::decode_ref)},
               {"TPOT ms", 250.0 / 15, What::kTime, 0, of_request(&RequestMetrics::tpot_ms)},
               {"tokens an event", 3.2, What::kExact, 0, of_request(&RequestMetrics::tokens_per_event)},
               {"prefill", 960, What::kRate, 500, of_level(&LevelMetrics::prefill)},
               {"ICL median ms", 60, What::kTime, 0, [](const Requests& r) { return median(request_metrics(r[0]).icl_ms); }},
               {"ICL mean ms", 62.5, What::kTime, 0, [](const Requests& r) { return mean(request_metrics(r[0]).icl_ms); }},
               {"ITL p50 ms", 15, What::kTime, 0, [](const Requests& r) { return weighted_quantile(request_metrics(r[0]).itl_ms, 0.5); }},
               {"ITL p90 ms", 20, What::kTime, 0, [](const Requests& r) { return weighted_quantile(request_metrics(r[0]).itl_ms, 0.9); }},
               {"ITL mean ms", 250.0 / 15, What::kTime, 0, [](const Requests& r) { return weighted_mean(request_metrics(r[0]).itl_ms); }}};
  return v;
}

Vector vector_a_bundled() {
  Vector v{"A, first event bundled", {tokens(0, {{500, 4}, {560, 4}, {620, 4}, {690, 4}}, 480)}, {}};
  v.expects = {{"d", 12 / 0.190, What::kRate, 190, of_request(&RequestMetrics::decode)}, {"d_ref", 15 / 0.190, What::kRate, 190, of_request(&RequestMetrics::decode_ref)}};
  return v;
}

Vector vector_b() {
  Vector v{"B", {tokens(0, {{400, 1}, {500, 3}, {600, 3}, {700, 3}, {800, 3}}, 500), tokens(2, {{650, 1}, {750, 2}, {850, 3}, {950, 2}, {1050, 3}}, 500)}, {}};
  v.expects = {{"tokens inside the window", 8, What::kExact, 0, [](const Requests& r) { return Number(level(r).window_tokens); }},
               {"A_win", 8 / 0.150, What::kRate, 150, of_level(&LevelMetrics::win)},
               {"A_span", 22 / 0.650, What::kRate, 650, of_level(&LevelMetrics::span)},
               {"A_all", 24 / 0.650, What::kRate, 650, of_level(&LevelMetrics::all)},
               {"A_sum", 55, What::kRate, 400, of_level(&LevelMetrics::sum)},
               {"window coverage", 0.15 / 0.65, What::kRate, 150, of_level(&LevelMetrics::window_coverage)},
               {"P", 1000 / 0.650, What::kRate, 650, of_level(&LevelMetrics::prefill)},
               {"user mean", (500 / 0.400 + 500 / 0.648) / 2, What::kRate, 400, of_level(&LevelMetrics::prefill_user)},
               {"TPOT 1 ms", 400.0 / 12, What::kTime, 0, of_request(&RequestMetrics::tpot_ms, 0)},
               {"TPOT 2 ms", 40, What::kTime, 0, of_request(&RequestMetrics::tpot_ms, 1)}};
  return v;
}

Vector vector_c() {
  const auto one = [](double release_ms, double at_ms, bool text) {
    return VectorStream{release_ms, {{at_ms, (text ? made::content_event("x", 1, false) : std::string()) + last_events(460, 1)}}, 1};
  };
  Vector v{"C", {one(0, 500, true), one(1, 1000, false), one(2, 1500, true)}, {}};
  v.expects = {{"P", 920, What::kRate, 1500, of_level(&LevelMetrics::prefill)},
               {"user mean", (460 / 0.500 + 460 / 0.999 + 460 / 1.498) / 3, What::kRate, 500, of_level(&LevelMetrics::prefill_user)},
               {"first tokens from a finish event", 1, What::kExact, 0, [](const Requests& r) {
                  double n = 0;
                  for (const auto& q : r) n += q.first_token_source == "finish" ? 1 : 0;
                  return Number(n);
                }}};
  return v;
}

Vector vector_d() {
  std::vector<double> to_36;
  for (int i = 1; i <= 36; ++i) to_36.push_back(i);
  const Ratio ratio = paired_ratio({50, 52, 51}, {60, 61, 63}).value_or(Ratio{});
  const auto interval = ratio.interval.value_or(std::pair(0.0, 0.0));
  Vector v{"D", {}, {}};
  v.expects = {{"p50 of four", 250, What::kExact, 0, statistic(quantile({100, 200, 300, 400}, 0.5))},
               {"p90 of 1..36", 32.5, What::kExact, 0, statistic(quantile(to_36, 0.9))},
               {"p95 of 1..36", 34.25, What::kExact, 0, statistic(quantile(to_36, 0.95))},
               {"ratio", 1.2025210949, What::kExact, 0, statistic(ratio.value)},
               {"interval, low", 1.1275790015, What::kExact, 0, statistic(interval.first)},
               {"interval, high", 1.2824440520, What::kExact, 0, statistic(interval.second)}};
  return v;
}

}  // namespace

std::vector<Vector> published_vectors() { return {vector_a(), vector_a_bundled(), vector_b(), vector_c(), vector_d()}; }

}  // namespace dsf::bench
