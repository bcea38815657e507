#include "tools/bench/commands.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "dsf/cli/version.h"
#include "dsf/io/file.h"
#include "tools/bench/campaign.h"
#include "tools/bench/compare.h"
#include "tools/bench/csv.h"
#include "tools/bench/plot.h"
#include "tools/bench/probe.h"
#include "tools/bench/run.h"
#include "tools/bench/selftest.h"

namespace dsf::bench {
namespace {

// Runs and their summaries; the data must not move, summaries borrow from it.
struct Loaded {
  std::vector<std::unique_ptr<RunData>> data;
  std::vector<Summary> summaries;
  std::vector<const Summary*> pointers;
};

Result<Loaded> load_all(const std::vector<std::string>& dirs) {
  Loaded out;
  for (const auto& dir : dirs) {
    DSF_TRY(RunData data, load_run(dir));
    out.data.push_back(std::make_unique<RunData>(std::move(data)));
    DSF_TRY(Summary summary, summarize(*out.data.back()));
    if (summary.passes.empty()) return fail(Code::kUsage, dir, "holds no pass of the matrix", "open-loop runs have no cells to compare");
    out.summaries.push_back(std::move(summary));
  }
  for (const auto& s : out.summaries) out.pointers.push_back(&s);
  return out;
}

Result<void> write_plots(const std::filesystem::path& dir, const std::vector<const Summary*>& summaries) {
  DSF_OK(io::make_dirs(dir / "plots"));
  DSF_OK(io::write_file_atomic(dir / "plots/decode.svg", plot_svg(summaries, "decode")));
  DSF_OK(io::write_file_atomic(dir / "plots/prefill.svg", plot_svg(summaries, "prefill")));
  return io::write_file_atomic(dir / "plots/data.tsv", plot_tsv(summaries));
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& p : parts) out += (out.empty() ? "" : ", ") + p;
  return out;
}

}  // namespace

void add_compare_flags(cli::Command& c, DirOptions& o) {
  c.positionals("DIR", o.dirs, "result directories; the first is the base", 2)
      .option("--out", o.out, "folder for compare.md, compare.json, compare.csv and plots", "DIR")
      .list("--fail-under", o.fail_under, "least ratio, as ratio.decode.off.c1=0.97", "EXPR")
      .flag("--strict", o.strict, "thresholds on the point, not on the interval")
      .flag("--same-weights", o.same_weights, "vouch that the runs served the same weights")
      .flag("--cross-hardware", o.cross_hardware, "compare different GPUs")
      .flag("--force", o.force, "print the table of runs that are not comparable, stamped so")
      .flag("--json", o.json, "print JSON");
}

void add_prompt_flags(cli::Command& c, PromptOptions& o) {
  c.option("--phase", o.phase, "decode, prefill or warmup", "PHASE")
      .option("--thinking", o.thinking, "thinking mode in the key", "MODE")
      .option("--levels", o.levels, "numbers of requests at once", "LIST")
      .option("--seed", o.seed, "seed", 0)
      .option("--input-lines", o.lines, "body lines", 1, 1'000'000)
      .option("--repeat", o.repeat, "repeat index", 0)
      .option("--prompt-style", o.prompt_style, "words, file:PATH or dataset:PATH", "STYLE")
      .flag("--text", o.text, "print the texts too");
}

void add_selftest_flags(cli::Command& c, SelftestFlags& o) {
  c.option("--seconds", o.seconds, "length of the load test", 0.1, 3600)
      .option("--tolerance-ms", o.tolerance_ms, "how late a stamp may be over loopback", 0.001, 10'000)
      .flag("--json", o.json, "print JSON");
}

namespace {

Result<int> run_one(const Plan& plan, bool print) {
  DSF_TRY(const Outcome outcome, run_plan(plan));
  if (print) std::cout << (plan.json_output ? json::dump(outcome.summary, json::Style::kPretty) + "\n" : outcome.table) << std::flush;
  if (outcome.code == Code::kOk) return 0;
  std::vector<std::string> reasons;
  for (const auto& r : outcome.summary.find("validity")->find("reasons")->as_array()) reasons.push_back(r.as_string());
  return fail(outcome.code, plan.out.string(), "the measurement is not valid: " + joined(reasons), "see table.md there", reasons.empty() ? "" : reasons.front());
}

}  // namespace

Result<int> run_and_print(const std::vector<Plan>& plans, const std::string& out) {
  if (plans.size() == 1) return run_one(plans.front(), true);
  std::vector<std::string> dirs;
  std::optional<Error> worst;  // a sweep goes on past a step that is not valid: the steps are results of their own
  for (const auto& plan : plans) {
    if (cli::stop_requested()) break;
    const auto one = run_one(plan, !plan.rate.kind.empty());
    if (!one && one.error().code != Code::kNo && one.error().code != Code::kRemote) return fail(one.error());
    if (!one && (!worst || worst->code == Code::kNo)) worst = one.error();
    dirs.push_back(plan.out.string());
  }
  if (plans.front().rate.kind.empty()) {
    DirOptions report;
    report.dirs = dirs;
    report.out = out;
    DSF_OK(run_report(report));
  }
  if (worst) return fail(*worst);
  return 0;
}

Result<int> run_probe(const RawOptions& raw, cli::Args args) {
  RawOptions options = raw;
  options.label = "probe";
  const bool any_model = options.model.empty();
  if (any_model) options.model = "-";
  DSF_TRY(Plan plan, make_plan(options, args));
  Control control(plan.target);
  if (any_model) {
    DSF_TRY(plan.target.model, first_model(control, plan.target.base_url));
  }
  Network network(plan.target.base_url, {}, plan.target.timeouts, monotonic_ns());
  DSF_TRY(const Probe probe, probe_server(plan, control, network));
  json::Array requests;
  for (const auto& r : probe.requests) requests.push_back(json::Object{{"id", r.id}, {"status", name_of(r.status)}, {"error", r.error}});
  std::cout << json::dump(json::Object{{"schema", "bench.probe/1"}, {"v", 1}, {"created_by", cli::tool_id("dsf-bench")}, {"model", plan.target.model}, {"server", probe.server},
                                       {"probe", probe.facts}, {"requests", std::move(requests)}}, json::Style::kPretty)
            << "\n";
  return 0;
}

Result<int> run_selftest(const SelftestFlags& o) {
  DSF_TRY(const SelftestReport report, selftest({o.seconds, o.tolerance_ms}));
  if (o.json) {
    std::cout << json::dump(to_json(report), json::Style::kPretty) << "\n";
  } else {
    for (const auto& c : report.checks) std::cout << (c.ok ? "ok    " : "FAIL  ") << c.name << " (" << c.detail << ")\n";
  }
  if (report.ok()) return 0;
  const bool only_time = std::all_of(report.checks.begin(), report.checks.end(), [](const SelftestCheck& c) { return c.ok || c.timed; });
  return fail(Code::kNo, "selftest", only_time ? "the counts are right, but this machine was too busy for the times" : "this build does not measure what was sent",
              only_time ? "try again on a quiet machine" : "do not use its numbers; report it with --version", only_time ? "client_bound" : "selftest");
}

Result<int> run_compare(const DirOptions& o) {
  DSF_TRY(const Loaded runs, load_all(o.dirs));
  DSF_TRY(const Comparison c, compare(runs.pointers, {o.force, o.same_weights, o.cross_hardware, o.strict, o.fail_under}));
  if (o.json) std::cout << json::dump(c.json, json::Style::kPretty) << "\n";
  else std::cout << c.markdown;
  if (!o.out.empty()) {
    const std::filesystem::path out = o.out;
    DSF_OK(io::make_dirs(out));
    DSF_OK(io::write_file_atomic(out / "compare.md", c.markdown));
    DSF_OK(io::write_file_atomic(out / "compare.json", json::dump(c.json, json::Style::kPretty) + "\n"));
    DSF_OK(io::write_file_atomic(out / "compare.csv", c.csv));
    DSF_OK(write_plots(out, runs.pointers));
  }
  for (const auto& r : c.refusals) std::cerr << "dsf-bench: compare: " << r << "\n";
  if (!c.refusals.empty()) return fail(Code::kNo, joined(o.dirs), "not comparable, " + std::to_string(c.refusals.size()) + " reason(s) above", "measure both in the same way, or --force", "not_comparable");
  if (!c.thresholds_met) return fail(Code::kNo, joined(o.dirs), "a threshold is not met", "", "threshold");
  return 0;
}

Result<int> run_report(const DirOptions& o) {
  DSF_TRY(const Loaded runs, load_all(o.dirs));
  const std::string report = campaign_report(runs.pointers);
  std::cout << report;
  if (o.out.empty()) return 0;
  const std::filesystem::path out = o.out;
  DSF_OK(io::make_dirs(out));
  DSF_OK(io::write_file_atomic(out / "report.md", report));
  DSF_OK(io::write_file_atomic(out / "matrix.csv", matrix_csv(runs.pointers)));
  DSF_OK(write_plots(out, runs.pointers));
  return 0;
}

Result<int> run_recompute(const DirOptions& o) {
  for (const auto& dir : o.dirs) {
    DSF_TRY(const Outcome outcome, write_derived(dir));
    std::cout << outcome.table;
  }
  return 0;
}

Result<int> run_prompts(const PromptOptions& o) {
  Settings s;
  s.seed = static_cast<uint64_t>(o.seed);
  s.input_lines = o.lines;
  s.phases = {o.phase};
  s.thinkings = {o.thinking};
  DSF_TRY(s.prompts, PromptSource::load(o.prompt_style));
  DSF_TRY(s.levels, parse_levels(o.levels));
  std::vector<std::string> hashes;
  for (const auto& level : plan_pass(s, o.phase, o.thinking, o.repeat)) {
    for (const auto& p : level.requests) {
      hashes.push_back(p.sha256);
      std::cout << p.sha256 << "  " << p.key.text() << "\n";
      if (o.text) std::cout << (p.prompt.messages.is_null() ? p.prompt.text : json::dump(p.prompt.messages)) << "\n\n";
    }
  }
  std::cout << pass_hash(hashes) << "  pass\n";
  return 0;
}

}  // namespace dsf::bench
