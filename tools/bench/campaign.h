#pragma once
// Report of a whole campaign: several engines, modes and phases in one headline table, tables and plots (bench.md 3.3, 3.7).
#include <string>
#include <vector>

#include "tools/bench/summary.h"

namespace dsf::bench {

// Runs with the same label are parts of one engine's campaign (one pass each, as the single-pass command line makes them).
std::string campaign_report(const std::vector<const Summary*>& summaries);

}  // namespace dsf::bench
