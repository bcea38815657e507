#include <iostream>

#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/pack-engram/options.h"
#include "tools/pack-engram/run.h"

int main(int argc, char** argv) {
  using namespace dsf;
  const int rc = cli::run_main(argc, argv, [](cli::Args args) -> Result<int> {
    pack_engram::RawOptions raw;
    cli::App app(pack_engram::tool_info());
    pack_engram::describe(app, raw);
    DSF_TRY(const std::optional<int> done, app.parse(args));
    if (done) return *done;
    if (raw.common.quiet)
      cli::set_log_level(cli::Level::kError);
    else if (raw.common.verbose > 0)
      cli::set_log_level(cli::Level::kDebug);
    DSF_TRY(const pack_engram::Plan plan, pack_engram::make_plan(raw));
    cli::install_stop_signals();
    return pack_engram::run(plan, std::cout, std::cerr);
  });
  cli::finish_signal();
  return rc;
}
