#pragma once
// Two nodes that are ready alone may still not go together: the reports of both, side by side. Nothing but the two
// files is read. Source: cluster.md 3 (agreement), engram.md 8.5, gb10.md 8.
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/cli/app.h"

namespace dsf::preflight {

struct RawCompare {
  cli::CommonFlags common;
  std::string a, b, report;
};
void describe_compare(cli::Command& command, RawCompare& raw);

// Exit code: 0 they go together (also with warnings), 1 not. Errors: kMissing, kContent (a file that is no preflight
// report).
Result<int> compare(const RawCompare& raw, std::ostream& out, std::ostream& err);

}  // namespace dsf::preflight
