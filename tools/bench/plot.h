#pragma once
// SVG plots over C and their data (bench.md 3.7), written by hand: one polyline for each label and thinking mode.
#include <string>
#include <vector>

#include "tools/bench/summary.h"

namespace dsf::bench {
// phase: "decode" (aggregate solid, hollow marker when the form is "span"; median stream dashed) or "prefill". Bars: min..max of repeats.
std::string plot_svg(const std::vector<const Summary*>& summaries, const std::string& phase);
std::string plot_tsv(const std::vector<const Summary*>& summaries);
}  // namespace dsf::bench
