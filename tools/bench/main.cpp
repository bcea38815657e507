// dsf-bench: measures an OpenAI-compatible endpoint with a reproducible concurrency matrix, and compares what it measured.
#include <iostream>

#include "dsf/cli/app.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/bench/commands.h"
#include "tools/bench/options.h"

namespace {

using namespace dsf;
using namespace dsf::bench;

cli::ToolInfo info() {
  return {"dsf-bench",
          "Measures an OpenAI-compatible endpoint with a reproducible concurrency matrix, and compares what it measured.",
          {{"dsf-bench --base-url http://127.0.0.1:8000/v1 --model dsf --label dsf --matrix --out results/dsf", "144 requests: off and 75, decode and prefill"},
           {"dsf-bench compare results/a results/b", "ratios, or the reasons why there are none"},
           {"dsf-bench report results/a results/b", "the headline table of a campaign"}}};
}

Result<int> body(cli::Args args) {
  RawOptions raw;
  DirOptions dirs;
  PromptOptions prompts;
  cli::App app(info());
  add_run_flags(app, raw);
  app.common(raw.common, cli::kJson);
  cli::Command& compare = app.subcommand("compare", "compare two or more result directories; refuses runs that differ in what they measured");
  add_compare_flags(compare, dirs);
  cli::Command& report = app.subcommand("report", "headline table, tables and plots of several result directories");
  report.positionals("DIR", dirs.dirs, "result directories", 1).option("--out", dirs.out, "folder for report.md, matrix.csv and plots", "DIR");
  cli::Command& recompute = app.subcommand("recompute", "compute summary, tables and plots again from the raw records");
  recompute.positionals("DIR", dirs.dirs, "result directories", 1);
  cli::Command& show = app.subcommand("prompts", "print the prompts of a pass and their hashes");
  add_prompt_flags(show, prompts);
  DSF_TRY(const auto exit_code, app.parse(args));
  if (exit_code) return *exit_code;
  cli::ignore_sigpipe();
  if (compare.chosen()) return run_compare(dirs);
  if (report.chosen()) return run_report(dirs);
  if (recompute.chosen()) return run_recompute(dirs);
  if (show.chosen()) return run_prompts(prompts);
  cli::install_stop_signals();
  DSF_TRY(const Plan plan, make_plan(raw, args));
  auto code = run_and_print(plan);
  if (cli::stop_requested()) {
    cli::log(cli::Level::kWarn, "interrupted; what was measured is in the result directory", {{"dir", plan.out.string()}});
    cli::finish_signal();
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) { return dsf::cli::run_main(argc, argv, body); }
