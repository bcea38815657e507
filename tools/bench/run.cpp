#include "tools/bench/run.h"

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "tools/bench/csv.h"
#include "tools/bench/plot.h"
#include "tools/bench/prompts.h"
#include "tools/bench/rate.h"
#include "tools/bench/runner.h"
#include "tools/bench/session.h"
#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

Result<void> check_out(const std::filesystem::path& out, bool resume) {
  std::error_code ignored;
  if (out.empty()) return fail(Code::kUsage, "--out", "a directory for the results is needed", "add --out DIR");
  if (!std::filesystem::exists(out, ignored)) return {};
  if (std::filesystem::is_directory(out, ignored) && std::filesystem::is_empty(out, ignored)) return {};
  if (resume) return {};
  return fail(Code::kUsage, out.string(), "the output directory is not empty", "name a new one: results are never overwritten; or --resume an interrupted run", "output_exists");
}

Result<void> write_sums(const std::filesystem::path& dir, const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    DSF_TRY(const codec::Digest digest, codec::sha256_file(dir / name));
    text += digest.hex() + "  " + name + "\n";
  }
  return io::write_file_atomic(dir / "SHA256SUMS", text);
}

}  // namespace

Result<Outcome> write_derived(const std::filesystem::path& dir) {
  DSF_TRY(const RunData data, load_run(dir));
  DSF_TRY(const Summary summary, summarize(data));
  Outcome out;
  out.summary = to_json(summary);
  std::vector<std::string> names = {"run.json", "raw.jsonl.zst"};
  const auto write = [&](const std::string& name, const std::string& text) {
    names.push_back(name);
    return io::write_file_atomic(dir / name, text);
  };
  out.table = data.run.find("rate") != nullptr ? rate_table(data) : data.run.find("session") != nullptr ? session_table(data) : run_table(summary);
  DSF_OK(write("summary.json", json::dump(out.summary, json::Style::kPretty) + "\n"));
  DSF_OK(write("table.md", out.table));
  DSF_OK(write("matrix.csv", matrix_csv({&summary})));
  DSF_OK(write("requests.csv", requests_csv(data)));
  if (!summary.passes.empty()) {
    DSF_OK(io::make_dirs(dir / "plots"));
    DSF_OK(write("plots/decode.svg", plot_svg({&summary}, "decode")));
    DSF_OK(write("plots/prefill.svg", plot_svg({&summary}, "prefill")));
    DSF_OK(write("plots/data.tsv", plot_tsv({&summary})));
  }
  DSF_OK(write_sums(dir, names));
  out.code = exit_code(summary.reasons);
  return out;
}

Result<Outcome> run_plan(const Plan& plan) {
  if (!prompt_selftest()) return fail(Code::kBug, "prompt generator", "its test vectors do not hold in this build", "report it with --version");
  DSF_OK(check_out(plan.out, plan.resume));
  if (plan.rate.kind.empty() && plan.turns == 0) DSF_OK(check_distinct(plan.settings));
  DSF_OK(Runner(plan).run());
  return write_derived(plan.out);
}

}  // namespace dsf::bench
