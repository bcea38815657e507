#pragma once
// dsf-bench selftest: does this build, on this machine, measure what was sent (bench.md 4.1, 8)? Vectors in memory and over loopback, the parser
// under every cutting, and the cost and lateness of the client under load. One thread; the loopback server has its own.
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"
#include "tools/bench/scripted.h"

namespace dsf::bench {

struct SelftestCheck {
  std::string name;
  std::string detail;  // what was seen against what was wanted
  bool ok = false;
  bool timed = false;  // a busy machine may fail it without a fault in the client
};

// Vectors A to D exactly, and E: one stream under every cutting of its bytes.
std::vector<SelftestCheck> check_in_memory();
// Vectors A to C as real HTTP: counts exactly, times within tolerance_ms. Errors: kLocal when no socket can be had.
Result<std::vector<SelftestCheck>> check_loopback(double tolerance_ms);

// The client against a server that notes its own writes: n_streams streams of one shape, released together.
struct LoadReport {
  int64_t events_sent = 0, events_seen = 0, wall_ns = 0, reads = 0, lag_max_ns = 0;
  int64_t thread_cpu_ns = 0;          // of the client's thread alone
  std::vector<double> late_us;        // per event: client's stamp minus the end of the server's write
  std::vector<double> ttft_ms, rate;  // per stream, as measured
  std::vector<double> ttft_error_ms;  // per stream: measured minus written, first token after release
  std::vector<double> rate_error;     // per stream: measured rate / written rate - 1
  double cpu_fraction() const { return static_cast<double>(thread_cpu_ns) / static_cast<double>(wall_ns); }
  double events_per_s() const { return static_cast<double>(events_seen) * 1e9 / static_cast<double>(wall_ns); }
  double cpu_us_per_event() const { return static_cast<double>(thread_cpu_ns) / 1e3 / static_cast<double>(events_seen); }
};
// client_core >= 0 keeps the client's thread on that core while it measures. Errors: kLocal.
Result<LoadReport> measure_load(const StreamShape& shape, size_t n_streams, int client_core = -1);

struct SelftestOptions {
  double seconds = 10;        // of the load test
  double tolerance_ms = 2;
};
struct SelftestReport {
  std::vector<SelftestCheck> checks;
  bool ok() const;
};
Result<SelftestReport> selftest(const SelftestOptions& options);
json::Value to_json(const SelftestReport& report);

}  // namespace dsf::bench
