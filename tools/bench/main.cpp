// dsf-bench: measures an OpenAI-compatible endpoint with a reproducible concurrency matrix, and compares what it measured.
#include <iostream>

#include "dsf/cli/app.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "tools/bench/commands.h"
#include "tools/bench/mock.h"

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

// Raw options of every command.
struct All {
  RawOptions run, probe;
  DirOptions dirs;
  PromptOptions prompts;
  MockOptions mock;
  SelftestFlags selftest;
};

Result<int> measure(const RawOptions& raw, cli::Args args) {
  cli::install_stop_signals();
  DSF_TRY(const std::vector<Plan> plans, make_plans(raw, args));
  auto code = run_and_print(plans, raw.out);
  if (cli::stop_requested()) {
    cli::log(cli::Level::kWarn, "interrupted; what was measured is in the result directory", {{"dir", raw.out}});
    cli::finish_signal();
  }
  return code;
}

Result<int> body(cli::Args args) {
  All all;
  cli::App app(info());
  add_run_flags(app, all.run);
  app.common(all.run.common, cli::kJson);
  cli::Command& run = app.subcommand("run", "the same as without a subcommand");
  add_run_flags(run, all.run);
  run.common(all.run.common, cli::kJson);
  cli::Command& compare = app.subcommand("compare", "compare two or more result directories; refuses runs that differ in what they measured");
  add_compare_flags(compare, all.dirs);
  cli::Command& report = app.subcommand("report", "headline table, tables and plots of several result directories");
  report.positionals("DIR", all.dirs.dirs, "result directories", 1).option("--out", all.dirs.out, "folder for report.md, matrix.csv and plots", "DIR");
  cli::Command& recompute = app.subcommand("recompute", "compute summary, tables and plots again from the raw records");
  recompute.positionals("DIR", all.dirs.dirs, "result directories", 1);
  cli::Command& show = app.subcommand("prompts", "print the prompts of a pass and their hashes");
  add_prompt_flags(show, all.prompts);
  cli::Command& probe = app.subcommand("probe", "print which optional features a server has");
  add_target_flags(probe, all.probe);
  cli::Command& mock = app.subcommand("mock", "serve scripted token streams, for judging a benchmark client");
  add_mock_flags(mock, all.mock);
  cli::Command& selftest = app.subcommand("selftest", "check this build on this machine: published vectors, loopback, load");
  add_selftest_flags(selftest, all.selftest);
  DSF_TRY(const auto exit_code, app.parse(args));
  if (exit_code) return *exit_code;
  cli::ignore_sigpipe();
  if (compare.chosen()) return run_compare(all.dirs);
  if (report.chosen()) return run_report(all.dirs);
  if (recompute.chosen()) return run_recompute(all.dirs);
  if (show.chosen()) return run_prompts(all.prompts);
  if (probe.chosen()) return run_probe(all.probe, args);
  if (mock.chosen()) return run_mock(all.mock);
  if (selftest.chosen()) return run_selftest(all.selftest);
  return measure(all.run, args);
}

}  // namespace

int main(int argc, char** argv) { return dsf::cli::run_main(argc, argv, body); }
