#include <iostream>

#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/preflight/checks.h"
#include "tools/preflight/compare.h"
#include "tools/preflight/options.h"
#include "tools/preflight/run.h"

int main(int argc, char** argv) {
  using namespace dsf;
  const int rc = cli::run_main(argc, argv, [](cli::Args args) -> Result<int> {
    preflight::RawOptions raw;
    cli::App app(preflight::tool_info());
    preflight::describe(app, raw);
    preflight::RawCompare pair;
    cli::Command& compare = app.subcommand("compare", "the reports of two nodes: do they go together?");
    preflight::describe_compare(compare, pair);
    DSF_TRY(const std::optional<int> done, app.parse(args));
    if (done) return *done;
    if (raw.common.quiet)
      cli::set_log_level(cli::Level::kError);
    else if (raw.common.verbose > 0)
      cli::set_log_level(cli::Level::kDebug);
    if (compare.chosen()) return preflight::compare(pair, std::cout, std::cerr);
    if (raw.list_checks) {
      for (const preflight::Check& c : preflight::all_checks()) std::cout << c.id << "  " << c.title << "\n";
      return 0;
    }
    DSF_TRY(const preflight::Plan plan, preflight::make_plan(raw));
    return preflight::run(plan, std::cout, std::cerr);
  });
  cli::finish_signal();
  return rc;
}
