#pragma once
// The subcommands of dsf-bench, each from parsed options to an exit code. They print their result on stdout.
#include <string>
#include <vector>

#include "dsf/cli/app.h"
#include "tools/bench/options.h"

namespace dsf::bench {

struct DirOptions {
  std::vector<std::string> dirs, fail_under;
  std::string out;
  bool force = false, same_weights = false, cross_hardware = false, strict = false, json = false;
};
struct PromptOptions {
  std::string phase = "decode", thinking = "off", levels = "1-8", prompt_style = "words";
  int64_t seed = 1, lines = 27, repeat = 0;
  bool text = false;
};

struct SelftestFlags {
  double seconds = 10, tolerance_ms = 2;
  bool json = false;
};

void add_selftest_flags(cli::Command& command, SelftestFlags& options);
void add_compare_flags(cli::Command& command, DirOptions& options);
void add_prompt_flags(cli::Command& command, PromptOptions& options);

// One plan, or the plans of a sweep one after the other and then their report in out.
Result<int> run_and_print(const std::vector<Plan>& plans, const std::string& out);
Result<int> run_probe(const RawOptions& raw, cli::Args args);
Result<int> run_selftest(const SelftestFlags& options);  // 1 when a check fails
Result<int> run_compare(const DirOptions& options);    // 1 when the runs are not comparable or a threshold is not met
Result<int> run_report(const DirOptions& options);
Result<int> run_recompute(const DirOptions& options);
Result<int> run_prompts(const PromptOptions& options);

}  // namespace dsf::bench
