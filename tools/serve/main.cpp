// dsf-serve: wiring only.
#include "dsf/cli/app.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/serve/run.h"
#include "tools/serve/score_command.h"

namespace {

dsf::Result<int> serve_main(dsf::cli::Args args) {
  dsf::serve::RawOptions raw;
  dsf::cli::App app(dsf::serve::tool_info());
  dsf::serve::add_flags(app, raw);
  dsf::serve::RawScore raw_score;
  dsf::cli::Command& score = app.subcommand("score", "log-probability of a given text, without serving");
  dsf::serve::add_score_flags(score, raw_score);
  DSF_TRY(const auto ended, app.parse(args));
  if (ended) return *ended;
  const dsf::cli::CommonFlags& common = score.chosen() ? raw_score.common : raw.common;
  if (common.quiet) dsf::cli::set_log_level(dsf::cli::Level::kError);
  if (common.verbose > 0) dsf::cli::set_log_level(dsf::cli::Level::kDebug);
  if (score.chosen()) {
    if (raw_score.model.empty())
      return dsf::fail(dsf::Code::kUsage, "--model", "is required", "give the folder of the checkpoint");
    return dsf::serve::run_score(dsf::serve::score_options(raw_score));
  }
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
