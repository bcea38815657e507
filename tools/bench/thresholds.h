#pragma once
// --fail-under and --fail-over: "decode.off.c1=50", "prefill.75.best=400", "ttft.off.c1.median_ms=1500" (bench.md 4.8).
#include <optional>
#include <string>

#include "tools/bench/summary.h"

namespace dsf::bench {

struct Threshold {
  std::string path;
  double limit = 0;
};
// Errors: kUsage.
Result<Threshold> parse_threshold(const std::string& expr);
// The number that a path names; nullopt when absent or its cell is not eligible.
std::optional<double> lookup(const Summary& summary, const std::string& path);
// An absent number fails.
ThresholdResult check_threshold(const Summary& summary, const Threshold& threshold, bool under);

}  // namespace dsf::bench
