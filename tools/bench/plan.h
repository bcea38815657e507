#pragma once
// A validated run: everything that run() needs, so that tests need no command line.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/bench/settings.h"

namespace dsf::bench {

// Gates that decide about validity; stored in run.json, since the summary is computed from files.
struct Gates {
  int64_t cache_tolerance = 64, allow_failures = 0;
  bool allow_cached = false;
  std::optional<double> slo_ttft_ms, slo_tpot_ms, slo_e2e_ms;
  std::vector<std::string> fail_under, fail_over;
};

// Requests at given times instead of the matrix.
struct RatePlan {
  std::string kind;                    // "constant", "poisson", "gamma", "trace"; empty: the matrix
  double rate = 0;                     // requests/s
  double ramp_to = 0;                  // > 0: the rate grows or falls linearly to this over the requests
  double burstiness = 1;               // shape of the gamma gaps: 1 is poisson, less is burstier
  int64_t requests = 0;
  std::string trace_path;
  std::string trace_sha256;
  struct Item {
    int64_t at_ns = 0;
    std::string prompt;                // empty: generated
    int64_t output_tokens = 0;         // 0: the run's
  };
  std::vector<Item> items;
  int64_t max_connections = 256;
};

// What is asked of the server before anything is measured (bench.md 4.7, 5).
struct ProbePlan {
  bool features = true;                // which optional members are honoured
  std::string latency = "none";        // "api" (GET models), "generation" (one token of a short prompt): floor of a round trip
  bool coherence = false;              // one question with a known answer
};

struct Plan {
  Settings settings;
  Target target;
  Gates gates;
  RatePlan rate;
  std::filesystem::path out;
  json::Value meta = json::Value::object();
  std::vector<std::string> argv;       // without secrets
  int64_t cooldown_ms = 500;
  int64_t retry_level = 0;             // whole levels with failures are run again, at most so often
  int64_t turns = 0;                   // > 0: sessions of so many turns instead of the matrix
  ProbePlan probe;
  bool resume = false, save_text = false, json_output = false, quiet = false;
};

}  // namespace dsf::bench
