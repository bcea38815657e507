#include "tools/bench/metrics.h"

#include <doctest/doctest.h>

#include "tools/bench/made_stream.h"

using namespace dsf::bench;
using namespace dsf::bench::made;

namespace {
doctest::Approx near(double v) { return doctest::Approx(v).epsilon(1e-9); }
LevelMetrics level(const std::vector<Request>& requests) {
  std::vector<const Request*> pointers;
  for (const auto& r : requests) pointers.push_back(&r);
  return level_metrics(pointers);
}
}  // namespace

TEST_CASE("vector A: drafts, reasoning then content") {
  const Request r = request_of(capture_of(vector_a()), 16);
  const RequestMetrics m = request_metrics(r);
  CHECK(r.weight_source == "token_ids");
  CHECK(*m.ttfr_ms == near(120));
  CHECK(*m.ttft_ms == near(500));
  CHECK(*m.ttfo_ms == near(750));
  CHECK(*m.decode == near(60));
  CHECK(*m.decode_ref == near(60));
  CHECK(*m.tpot_ms == near(16.6666666667).epsilon(1e-9));
  CHECK(m.icl_ms == std::vector<double>{60, 60, 70, 60});
  CHECK(*median(m.icl_ms) == near(60));
  CHECK(*mean(m.icl_ms) == near(62.5));
  CHECK(*weighted_quantile(m.itl_ms, 0.5) == near(15));
  CHECK(*weighted_quantile(m.itl_ms, 0.9) == near(20));
  CHECK(*weighted_mean(m.itl_ms) == near(16.6666666667));
  CHECK(*m.tokens_per_event == near(3.2));
  CHECK(*m.prefill == near(960));
  CHECK(*m.e2e_ms == near(750));
  CHECK(*level({r}).prefill == near(960));
}

TEST_CASE("vector A without token ids: uniform weights") {
  const Request r = request_of(capture_of(vector_a(false)), 16);
  CHECK(r.weight_source == "uniform");
  const auto events = token_events(r);
  REQUIRE(events.size() == 5);
  CHECK(events[0].w == 1);
  CHECK(events[4].w == near(3.75));
  CHECK(*request_metrics(r).decode == near(60));
  CHECK(*request_metrics(r).decode_ref == near(60));
}

TEST_CASE("vector A with a bundled first event: d is not d_ref") {
  const RequestMetrics m = request_metrics(tokens_only(0, {{500, 4}, {560, 4}, {620, 4}, {690, 4}}, 480));
  CHECK(*m.decode_ref == near(78.9473684211));
  CHECK(*m.decode == near(63.1578947368));
  CHECK(*m.decode_ref / *m.decode == near(1.25));
}

TEST_CASE("vector A in one read: no rate, and the reason") {
  std::string bytes = bytes_of(vector_a());
  Capture c = capture_of({{750, bytes}});
  const Request r = request_of(c, 16);
  const RequestMetrics m = request_metrics(r);
  CHECK_FALSE(m.decode);
  CHECK_FALSE(m.tpot_ms);
  CHECK(m.itl_ms.empty());
  CHECK(m.why_no_decode == "single_read");
  CHECK(m.icl_ms == std::vector<double>{0, 0, 0, 0});
  CHECK(*level({r}).coalesced_fraction == 1);
}

TEST_CASE("vector B: two streams, every form of aggregate decode") {
  const std::vector<Request> both = {tokens_only(0, {{400, 1}, {500, 3}, {600, 3}, {700, 3}, {800, 3}}, 500),
                                     tokens_only(2, {{650, 1}, {750, 2}, {850, 3}, {950, 2}, {1050, 3}}, 500)};
  const LevelMetrics m = level(both);
  CHECK(*m.window_lo == ms(650));
  CHECK(*m.window_hi == ms(800));
  CHECK(m.window_tokens == 8);
  CHECK(*m.win == near(53.3333333333));
  CHECK(*m.span == near(33.8461538462));
  CHECK(*m.all == near(36.9230769231));
  CHECK(*m.sum == near(55));
  CHECK(*m.stream_min == near(25));
  CHECK(*m.stream_max == near(30));
  CHECK(*m.window_coverage == near(0.2307692308));
  CHECK_FALSE(m.window_valid);
  CHECK(*m.prefill == near(1538.4615384615));
  CHECK(*m.prefill_user == near(1010.8024691358));
  CHECK(m.tpot_ms[0] == near(33.3333333333));
  CHECK(m.tpot_ms[1] == near(40));
  CHECK(m.spread_ns == ms(2));
  std::vector<const Request*> pointers = {&both[0], &both[1]};
  const auto g = goodput(pointers, {500.0, 40.0, std::nullopt});
  REQUIRE(g);
  CHECK(g->requests_per_s == near(0.9523809524));
  CHECK(g->good_fraction == near(0.5));

  const LevelMetrics uniform = level({tokens_only(0, {{400, 1}, {500, 3}, {600, 3}, {700, 3}, {800, 3}}, 500, false),
                                      tokens_only(2, {{650, 1}, {750, 2}, {850, 3}, {950, 2}, {1050, 3}}, 500, false)});
  CHECK(*uniform.win == near(56.6666666667));
}

TEST_CASE("vector C: prefill served one after another") {
  const auto content = [](double at, double release, int cached = 0) {
    Request r = request_of(capture_of({{at, content_event("x", 1, false) + finish_event("length") + usage_event(460, 1, cached) + "data: [DONE]\n\n"}}, release), 1);
    return r;
  };
  const Request silent = request_of(capture_of({{1000, finish_event("length") + usage_event(460, 1) + "data: [DONE]\n\n"}}, 1), 1);
  CHECK(silent.first_token_source == "finish");
  const LevelMetrics m = level({content(500, 0), silent, content(1500, 2)});
  CHECK(m.ok == 3);
  CHECK(*m.prefill == near(920));
  CHECK(*m.prefill_user == near(562.5121873097));
  CHECK_FALSE(m.win);
  CHECK_FALSE(m.span);
  CHECK_FALSE(m.sum);

  const Request cached = content(1500, 2, 448);
  CHECK(contaminated(cached, 64));
  CHECK_FALSE(contaminated(silent, 64));
  const LevelMetrics warm = level({content(500, 0), silent, cached});
  CHECK(*warm.prefill == near(920));
  CHECK(*warm.prefill_uncached == near(621.3333333333));

  const Request failed = request_of(capture_of({{1500, content_event("x", 1) + sse_data(R"({"error":{"message":"no"}})")}}, 2), 1);
  CHECK(failed.status == Status::kStreamError);
  const LevelMetrics part = level({content(500, 0), silent, failed});
  CHECK(part.planned == 3);
  CHECK(part.ok == 2);
  CHECK(*part.prefill == near(920));
}

TEST_CASE("a level without a success has no numbers") {
  Request r;
  r.status = Status::kConnectError;
  const LevelMetrics m = level({r});
  CHECK(m.ok == 0);
  CHECK_FALSE(m.prefill);
  CHECK_FALSE(m.span);
}
