#include <iostream>

#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/verify/options.h"
#include "tools/verify/remote.h"
#include "tools/verify/repair.h"
#include "tools/verify/run.h"

int main(int argc, char** argv) {
  using namespace dsf;
  const int rc = cli::run_main(argc, argv, [](cli::Args args) -> Result<int> {
    verify::RawOptions raw;
    cli::App app(verify::tool_info());
    verify::describe(app, raw);
    verify::RawOptions raw_repair;
    cli::Command& repair = app.subcommand("repair", "fetch damaged pieces or files again, then verify");
    verify::describe_repair(repair, raw_repair);
    DSF_TRY(const std::optional<int> done, app.parse(args));
    if (done) return *done;
    if (repair.chosen()) raw = raw_repair;
    if (raw.common.quiet)
      cli::set_log_level(cli::Level::kError);
    else if (raw.common.verbose > 0)
      cli::set_log_level(cli::Level::kDebug);
    DSF_TRY(const verify::Plan plan, verify::make_plan(raw));
    cli::install_stop_signals();
    if (!repair.chosen()) return verify::run(plan, std::cout, std::cerr);
    DSF_TRY(const auto shared, verify::connect(plan));
    return verify::repair(plan, {}, shared, std::cout, std::cerr);
  });
  cli::finish_signal();
  return rc;
}
