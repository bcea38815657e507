#pragma once
// Command line of dsf-make-checkpoint.
#include <optional>
#include <string>
#include <vector>

#include "dsf/cli/app.h"
#include "dsf/made_checkpoint/made_checkpoint.h"

namespace dsf::make_checkpoint {

struct Plan {
  made_checkpoint::Options options;
  std::string native, exl3, dequantised;  // folders; empty: not wanted
  bool keep = false;                      // the folders exist: only break them
  std::vector<made_checkpoint::Breakage> breakages;
};

// nullopt: --help or --version was printed. Errors: kUsage.
Result<std::optional<Plan>> parse_plan(cli::Args args);

}  // namespace dsf::make_checkpoint
