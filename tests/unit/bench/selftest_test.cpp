#include "tools/bench/selftest.h"

#include <doctest/doctest.h>

using namespace dsf;
using namespace dsf::bench;

TEST_CASE("vectors A to E hold in memory, exactly") {
  const auto checks = check_in_memory();
  CHECK(checks.size() > 40);
  for (const auto& c : checks) CHECK_MESSAGE(c.ok, c.name << ": " << c.detail);
}

TEST_CASE("vectors A to C hold over loopback: counts whatever the load, times on a quiet machine (dsf-bench selftest)") {
  const auto checks = check_loopback(2);
  REQUIRE(checks);
  CHECK(checks->size() > 30);
  for (const auto& c : *checks) {
    if (!c.timed) CHECK_MESSAGE(c.ok, c.name << ": " << c.detail);
  }
}

TEST_CASE("under load no event is lost") {
  StreamShape shape;
  shape.n_tokens = 200;
  shape.first_ms = 5;
  shape.gap_ms = 0.5;
  const auto load = measure_load(shape, 8);
  REQUIRE(load);
  CHECK(load->events_seen == load->events_sent);
  CHECK(load->events_sent == 8 * 203);
  CHECK(load->late_us.size() == static_cast<size_t>(load->events_sent));
  CHECK(load->ttft_error_ms.size() == 8);
  CHECK(load->thread_cpu_ns > 0);
}
