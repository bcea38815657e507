// How true the benchmark client's numbers are, and how many events one core takes: against the scripted server, which notes its own writes on
// the same clock. Figures are printed with the load they were taken under; only bounds that a busy machine keeps are checked.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

#include "tools/bench/selftest.h"
#include "tools/bench/stats.h"

using namespace dsf;
using namespace dsf::bench;

namespace {

double load_average() {
  std::array<double, 1> load{};
  return getloadavg(load.data(), 1) == 1 ? load[0] : -1;
}

double worst(const std::vector<double>& v) {
  double out = 0;
  for (const double x : v) out = std::max(out, std::abs(x));
  return out;
}
double typical(std::vector<double> v) {
  for (double& x : v) x = std::abs(x);
  return median(v).value_or(-1);
}

}  // namespace

TEST_CASE("TTFT and rate of every scripted case against the server's writes and against the script") {
  struct Case {
    const char* name;
    void (*set)(StreamShape&);
  };
  const Case cases[] = {{"plain", [](StreamShape&) {}},
                        {"role first", [](StreamShape& s) { s.role_ms = 20; }},
                        {"bundled", [](StreamShape& s) { s.tokens_per_event = 4, s.first_event_tokens = 4, s.n_tokens = 400, s.token_ids = true; }},
                        {"reasoning", [](StreamShape& s) { s.reasoning_events = 40; }},
                        {"tool calls", [](StreamShape& s) { s.tool_events = 20; }},
                        {"comments", [](StreamShape& s) { s.comment_every_ms = 10; }},
                        {"crlf", [](StreamShape& s) { s.crlf = true; }},
                        {"byte by byte", [](StreamShape& s) { s.byte_by_byte = true; }}};
  constexpr int kRepeats = 5;
  for (const auto& c : cases) {
    StreamShape shape;
    shape.n_tokens = 100;
    shape.first_ms = 100;
    shape.gap_ms = 10;
    c.set(shape);
    const double script_rate = 1000.0 * shape.tokens_per_event / shape.gap_ms;
    std::vector<double> ttft, rate, ttft_script, rate_script;
    for (int i = 0; i < kRepeats; ++i) {
      const auto load = measure_load(shape, 1);
      REQUIRE(load);
      CHECK(load->events_seen == load->events_sent);
      ttft.insert(ttft.end(), load->ttft_error_ms.begin(), load->ttft_error_ms.end());
      for (const double e : load->rate_error) rate.push_back(e * 100);
      for (const double t : load->ttft_ms) ttft_script.push_back(t - shape.first_ms);
      for (const double r : load->rate) rate_script.push_back((r / script_rate - 1) * 100);
    }
    std::cout << c.name << ": TTFT error ms against writes median " << typical(ttft) << " worst " << worst(ttft) << ", against script median " << typical(ttft_script) << " worst "
              << worst(ttft_script) << "; rate error % against writes median " << typical(rate) << " worst " << worst(rate) << ", against script median " << typical(rate_script)
              << " worst " << worst(rate_script) << " (load " << load_average() << ")\n";
    CHECK(typical(ttft) < 500);
  }
}

TEST_CASE("eight live streams on one core: cost of an event, and how many a second") {
  struct Case {
    const char* name;
    double gap_ms;
    int n_tokens, events_per_write;
  };
  const Case cases[] = {{"8 x 1000 events/s", 1, 5'000, 1}, {"50000 events/s in all", 0.16, 12'000, 1}, {"as fast as the server can, an event a write", 0, 40'000, 1},
                        {"as fast as the server can, 16 events a write", 0, 160'000, 16}};
  for (const auto& c : cases) {
    StreamShape shape;
    shape.n_tokens = c.n_tokens;
    shape.first_ms = 50;
    shape.gap_ms = c.gap_ms;
    shape.events_per_write = c.events_per_write;
    const auto load = measure_load(shape, 8, 1);
    REQUIRE(load);
    std::cout << c.name << ": " << load->events_per_s() << " events/s, " << load->cpu_us_per_event() << " us of CPU an event, " << load->cpu_fraction() * 100 << " % of the core, "
              << static_cast<double>(load->reads) / static_cast<double>(load->events_seen) << " reads an event, longest turn " << static_cast<double>(load->lag_max_ns) / 1e6 << " ms";
    if (!load->late_us.empty()) std::cout << ", stamp after write us p50 " << *quantile(load->late_us, 0.5) << " p99 " << *quantile(load->late_us, 0.99);
    std::cout << " (load " << load_average() << ")\n";
    CHECK(load->events_seen == load->events_sent);
    CHECK(load->cpu_us_per_event() < 200);
  }
}
