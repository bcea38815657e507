#include <cstdio>

#include "dsf/cli/app.h"
#include "tests/support/checkpoint/options.h"
#include "tests/support/checkpoint/run.h"

int main(int argc, char** argv) {
  return dsf::cli::run_main(argc, argv, [](dsf::cli::Args args) -> dsf::Result<int> {
    DSF_TRY(const auto plan, dsf::make_checkpoint::parse_plan(args));
    if (!plan) return 0;
    DSF_OK(dsf::make_checkpoint::run(*plan, [](const std::string& line) { std::printf("%s\n", line.c_str()); }));
    return 0;
  });
}
