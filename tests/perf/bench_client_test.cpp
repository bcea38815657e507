// How true the benchmark client's stamps are, and how many events one core takes: against the scripted server, which notes its own writes
// on the same clock.
#include <doctest/doctest.h>
#include <time.h>

#include <iostream>

#include "dsf/base/time.h"
#include "dsf/test/scripted.h"
#include "tools/bench/body.h"
#include "tools/bench/events.h"
#include "tools/bench/metrics.h"
#include "tools/bench/network.h"

using namespace dsf;
using namespace dsf::bench;
using dsf::test::ScriptedServer;
using dsf::test::StreamShape;

namespace {

int64_t thread_cpu_ns() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
}

struct Measured {
  std::vector<Request> requests;
  std::vector<dsf::test::Played> played;
  LoopStats loop;
  int64_t epoch_ns = 0, cpu_ns = 0, events = 0;
};

Measured measure(const StreamShape& shape, size_t n_streams) {
  auto server = ScriptedServer::start({}, [&](const json::Value&, int) { return make_script(shape); });
  REQUIRE(server);
  Measured out;
  out.epoch_ns = monotonic_ns();
  Network network((*server)->base_url(), {}, {}, out.epoch_ns);
  network.prepare(n_streams, "");
  const auto url = http::parse_url((*server)->base_url());
  const std::string body = R"({"model":"scripted","stream":true,"messages":[]})";
  const std::vector<Outgoing> requests(n_streams, {http_request(*url, "/v1/chat/completions", body, ""), std::nullopt});
  const int64_t cpu = thread_cpu_ns();
  const auto captures = network.run(requests);
  out.cpu_ns = thread_cpu_ns() - cpu;
  out.loop = network.stats();
  for (const auto& capture : captures) {
    Request r;
    r.max_tokens = shape.n_tokens;
    assemble(capture, r);
    CHECK_MESSAGE(r.ok(), r.error);
    out.events += static_cast<int64_t>(r.events.size());
    out.requests.push_back(std::move(r));
  }
  out.played = (*server)->played();
  return out;
}

}  // namespace

TEST_CASE("one stream: stamps and rates are those of the writes") {
  StreamShape shape;
  shape.n_tokens = 200;
  shape.first_ms = 100;
  shape.gap_ms = 5;
  const Measured m = measure(shape, 1);
  REQUIRE(m.played.size() == 1);
  const Request& r = m.requests[0];
  const auto& written = m.played[0].written_ns;
  REQUIRE(r.events.size() == written.size());
  std::vector<double> late_us;
  for (size_t i = 0; i < written.size(); ++i) late_us.push_back(static_cast<double>(r.events[i].t + m.epoch_ns - written[i]) / 1e3);
  const double ttft_ms = *request_metrics(r).ttft_ms, write_ms = static_cast<double>(written[0] - (*r.t.release + m.epoch_ns)) / 1e6;
  const double rate = *request_metrics(r).decode, write_rate = 199e9 / static_cast<double>(written[199] - written[0]);
  std::cout << "stamp after write, us: p50 " << *quantile(late_us, 0.5) << ", p99 " << *quantile(late_us, 0.99) << ", max " << *max_of(late_us) << "\n"
            << "TTFT ms: measured " << ttft_ms << ", written " << write_ms << ", script 100\n"
            << "rate tok/s: measured " << rate << ", written " << write_rate << ", script 200, error " << (rate / write_rate - 1) * 100 << " %\n";
  CHECK(*quantile(late_us, 0.5) < 20'000);
  CHECK(rate == doctest::Approx(write_rate).epsilon(0.2));
}

TEST_CASE("eight streams of small events: cost of an event on one core") {
  for (const double gap_ms : {0.16, 0.0}) {  // 50,000 events/s in all; as fast as the server can
    StreamShape shape;
    shape.n_tokens = gap_ms > 0 ? 12'000 : 40'000;
    shape.first_ms = 50;
    shape.gap_ms = gap_ms;
    const Measured m = measure(shape, 8);
    const auto events = static_cast<double>(m.events);
    std::cout << "gap " << gap_ms << " ms: " << m.events << " events in " << static_cast<double>(m.loop.wall_ns) / 1e9 << " s = "
              << events * 1e9 / static_cast<double>(m.loop.wall_ns) << " events/s, client thread " << static_cast<double>(m.cpu_ns) / events << " ns an event ("
              << events * 1e9 / static_cast<double>(m.cpu_ns) << " events/s on one core), " << static_cast<double>(m.loop.reads) / events
              << " reads an event, longest loop " << static_cast<double>(m.loop.lag_max_ns) / 1e6 << " ms\n";
    CHECK(m.events == 8 * (shape.n_tokens + 3));
    CHECK(static_cast<double>(m.cpu_ns) / events < 200'000);
  }
}
