#pragma once
// dsf-bench mock: the scripted server as a command, for judging any benchmark client (bench.md 8). Runs until a signal.
#include <string>

#include "dsf/cli/app.h"

namespace dsf::bench {

struct MockOptions {
  std::string host = "127.0.0.1", model = "scripted", shape = "{}", script, identity, port_file;
  int64_t port = 0;
  bool strict = false, prefix_cache = false;
};

void add_mock_flags(cli::Command& command, MockOptions& options);
// Prints the base URL, then serves. Errors: kUsage for a shape or script that is none, kBusy.
Result<int> run_mock(const MockOptions& options);

}  // namespace dsf::bench
