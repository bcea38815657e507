#pragma once
// Open loop: requests at times that do not wait for answers (bench.md 5). Times are made before the run, so that they are recorded and
// repeatable. Latency is reported from release and from schedule: the first hides a slow client, the second shows it.
#include <string>

#include "tools/bench/plan.h"
#include "tools/bench/run_data.h"

namespace dsf::bench {

// Fills items for kind "constant", "poisson" or "gamma" from rate, ramp, requests and the seed.
void schedule_rate(RatePlan& plan, uint64_t seed);
// Reads a trace: JSON lines {"at_ms": N, "prompt": TEXT?, "output_tokens": N?}, or raw records of an earlier run (their release times).
// Errors: kMissing, kContent, kUsage when it is empty.
Result<void> load_trace(RatePlan& plan);
std::string rate_table(const RunData& data);

}  // namespace dsf::bench
