#pragma once
// What an interrupted run has left that is worth keeping (bench.md 2.2, --resume): every level that came to its end.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/bench/plan.h"
#include "tools/bench/run_data.h"

namespace dsf::bench {

struct PartialRun {
  json::Value run;                        // run.json; null: nothing to resume
  std::vector<json::Value> records;       // of finished levels, in order; without an end record
  std::set<std::string> levels, checks;   // names of finished levels and token checks, see level_name()
  int64_t requests = 0, ok = 0;           // measured, not warm-up
  bool complete = false;                  // there is nothing left to do
  bool has(const std::string& level) const { return levels.contains(level); }
  // Prompt tokens that the measured requests of a repeat reported, by c and slot. pass: level_name() with c = 0.
  std::map<std::pair<int64_t, int64_t>, int64_t> prompt_tokens(const std::string& pass) const;
};

std::string level_name(std::string_view phase, std::string_view thinking, int64_t repeat, int64_t c);
// Errors: kMissing without a run there, kContent for damage, kUsage when it was another run (settings, model, label).
Result<PartialRun> read_partial(const std::filesystem::path& dir, const Plan& plan);

}  // namespace dsf::bench
