#pragma once
// Markdown tables of one run (bench.md 3.3). Rounding happens here and nowhere else.
#include <optional>
#include <string>

#include "tools/bench/summary.h"

namespace dsf::bench {
std::string run_table(const Summary& summary);
// Rows of the headline table: "| label | off | 58.1 | 451.2 (C2) |".
std::string headline_header();
std::string headline_rows(const Summary& summary);
std::string format_number(const std::optional<double>& value, int digits);  // "-" when there is none
// A cell's number with its marks: "(12.3)" when incomplete, "12.3 (cached)".
std::string marked(const Cell& cell, const std::optional<double>& value, int digits);
}  // namespace dsf::bench
