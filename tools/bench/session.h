#pragma once
// Report of a run of conversations (bench.md 5, multi-turn): what each turn cost, and how much of its prompt a prefix cache already had. Cached tokens
// are the point here, so nothing of this is compared with, or counted into, the matrix.
#include <string>

#include "tools/bench/run_data.h"

namespace dsf::bench {
std::string session_table(const RunData& data);
}  // namespace dsf::bench
