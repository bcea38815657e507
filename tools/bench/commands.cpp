#include "tools/bench/commands.h"

#include <iostream>
#include <memory>

#include "dsf/io/file.h"
#include "tools/bench/campaign.h"
#include "tools/bench/compare.h"
#include "tools/bench/csv.h"
#include "tools/bench/options.h"
#include "tools/bench/plot.h"
#include "tools/bench/run.h"

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
      .flag("--text", o.text, "print the texts too");
}

Result<int> run_and_print(const Plan& plan) {
  DSF_TRY(const Outcome outcome, run_plan(plan));
  std::cout << (plan.json_output ? json::dump(outcome.summary, json::Style::kPretty) + "\n" : outcome.table) << std::flush;
  if (outcome.code == Code::kOk) return 0;
  std::vector<std::string> reasons;
  for (const auto& r : outcome.summary.find("validity")->find("reasons")->as_array()) reasons.push_back(r.as_string());
  return fail(outcome.code, plan.out.string(), "the measurement is not valid: " + joined(reasons), "see table.md there", reasons.empty() ? "" : reasons.front());
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
  DSF_TRY(s.levels, parse_levels(o.levels));
  std::vector<std::string> hashes;
  for (const auto& level : plan_pass(s, o.phase, o.thinking, o.repeat)) {
    for (const auto& p : level.requests) {
      hashes.push_back(p.sha256);
      std::cout << p.sha256 << "  " << p.key.text() << "\n";
      if (o.text) std::cout << p.text << "\n\n";
    }
  }
  std::cout << pass_hash(hashes) << "  pass\n";
  return 0;
}

}  // namespace dsf::bench
