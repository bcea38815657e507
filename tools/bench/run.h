#pragma once
// Runs a plan against a server and leaves a result directory behind (bench.md 2.5, 2.6, 3, 4.8). Main thread.
#include "dsf/base/result.h"
#include "tools/bench/plan.h"
#include "tools/bench/summary.h"

namespace dsf::bench {

struct Outcome {
  Code code = Code::kOk;
  std::string table;        // Markdown, for stdout
  json::Value summary;
};

// Errors: kUsage "output_exists" or "duplicate_prompt", kRemote, kRefused (see probe.h), kLocal for the disk. A run whose answer is "no"
// (failed requests, contaminated, threshold) is an Outcome with its code, not an error.
Result<Outcome> run_plan(const Plan& plan);

// Computes summary.json, table.md, CSV files, plots and SHA256SUMS again from run.json and raw.jsonl.zst.
Result<Outcome> write_derived(const std::filesystem::path& dir);

}  // namespace dsf::bench
