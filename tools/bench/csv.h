#pragma once
// matrix.csv and requests.csv (bench.md 3.4): RFC 4180, '.' as decimal point, empty for "no such number".
#include <string>
#include <vector>

#include "tools/bench/summary.h"

namespace dsf::bench {
std::string matrix_csv(const std::vector<const Summary*>& summaries);
std::string requests_csv(const RunData& data);
}  // namespace dsf::bench
