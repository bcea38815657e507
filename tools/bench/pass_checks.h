#pragma once
// What can be said of a whole pass from its records: prompts, weights, evidence about caches and about the thinking mode.
#include "tools/bench/summary.h"

namespace dsf::bench {
// Fills pass_sha256, decode_formula, weight_source, cache_evidence, token_check and thinking_check. phase and thinking must be set.
void check_pass(const RunData& data, Pass& pass, int64_t repeats);
}  // namespace dsf::bench
