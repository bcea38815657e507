#pragma once
// Command line of dsf-quantize.
#include <optional>
#include <string>

#include "dsf/cli/app.h"
#include "tests/support/quantize/widths.h"

namespace dsf::quantize {

struct Plan {
  std::string native, output;  // folders
  Widths widths;
  std::string calibration;  // file of token ids; empty: no error feedback
  std::string engram;       // folder with the Engram tables; empty: the native folder's own
  bool ldlq = true;         // use the calibration text for error feedback, not only for the report
  uint64_t max_shard_bytes = 0;
  uint64_t seed = 1;  // of the random signs
  int threads = 0;    // 0: one per core
  bool json = false;
};

// nullopt: --help or --version was printed. Errors: kUsage.
Result<std::optional<Plan>> parse_plan(cli::Args args);

}  // namespace dsf::quantize
