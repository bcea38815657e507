// dsf-serve: wiring only.
#include "dsf/cli/app.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/serve/run.h"

namespace {

dsf::Result<int> serve_main(dsf::cli::Args args) {
  dsf::serve::RawOptions raw;
  dsf::cli::App app(dsf::serve::tool_info());
  dsf::serve::add_flags(app, raw);
  DSF_TRY(const auto ended, app.parse(args));
  if (ended) return *ended;
  if (raw.common.quiet) dsf::cli::set_log_level(dsf::cli::Level::kError);
  if (raw.common.verbose > 0) dsf::cli::set_log_level(dsf::cli::Level::kDebug);
  DSF_TRY(dsf::serve::ServePlan plan, dsf::serve::make_plan(raw));
  dsf::cli::install_stop_signals();
  return dsf::serve::run_server(std::move(plan));
}

}  // namespace

int main(int argc, char** argv) {
  const int code = dsf::cli::run_main(argc, argv, serve_main);
  dsf::cli::finish_signal();
  return code;
}
