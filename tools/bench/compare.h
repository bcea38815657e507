#pragma once
// Comparison of two or more runs, which refuses unless they measured the same thing (bench.md 3.5). The first run is the base.
#include <string>
#include <vector>

#include "tools/bench/summary.h"

namespace dsf::bench {

struct CompareOptions {
  bool force = false;           // print anyway, stamped
  bool same_weights = false;    // the user vouches for equal weights
  bool cross_hardware = false;
  bool strict = false;          // thresholds on the point, not on the interval
  std::vector<std::string> fail_under;  // "ratio.decode.off.c1=0.97"
};

struct Comparison {
  std::vector<std::string> refusals;  // why the runs are not comparable; one clause each, naming the difference
  std::vector<std::string> warnings;
  std::string markdown;
  std::string csv;
  json::Value json;
  bool thresholds_met = true;
};

// Reasons for refusal and warnings of one pair.
void check_pair(const Summary& a, const Summary& b, const CompareOptions& options, Comparison& out);
// Errors: kUsage for a bad threshold or fewer than two runs.
Result<Comparison> compare(const std::vector<const Summary*>& runs, const CompareOptions& options);

}  // namespace dsf::bench
