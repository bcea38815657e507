#pragma once
// Everything that a result directory holds, read back from run.json and raw.jsonl.zst. Summaries, tables and comparisons start here,
// also in the run that wrote the files, so that a summary can always be computed again (bench.md 3.2).
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/bench/record.h"

namespace dsf::bench {

inline constexpr std::string_view kRunSchema = "bench.run/1";

struct LevelRecord {
  std::string phase, thinking;
  int64_t repeat = 0, c = 1, attempt = 0;
  bool warmup = false;
  int64_t ok = 0, failed = 0, spread_ns = 0, cpu_ns = 0, wall_ns = 0, lag_max_ns = 0;
  std::map<std::string, double> before, after;  // server counters around the level; empty: not scraped
};

// Prompt tokens of a pass against the server's own tokenizer.
struct TokenCheck {
  std::string phase, thinking;
  int64_t repeat = 0;
  std::string result;  // "verified", "verified_offset", "count_mismatch", "unverified"
  std::string detail;
};

struct RunData {
  std::filesystem::path dir;
  json::Value run;                    // run.json
  std::vector<Request> requests;      // warm-up and attempts that were run again excluded
  std::vector<LevelRecord> levels;    // warm-up excluded
  std::vector<TokenCheck> token_checks;
  std::string state;                  // "complete", "partial", "aborted", "killed"
  std::string run_sha256, raw_sha256; // of the files
};

json::Value to_json(const LevelRecord& level);
json::Value scrape_json(const LevelRecord& level, bool after);
json::Value to_json(const TokenCheck& check);

// Errors: kMissing when dir holds no result, kContent when a file is damaged or of another major version.
Result<RunData> load_run(const std::filesystem::path& dir);

// Digests of weights that the server reported when the run began: name -> value, from /v1/models and /metrics. Empty: it reports none.
std::map<std::string, std::string> weight_digests(const json::Value& run);
// Digest-like members anywhere below value, by their dotted path.
void collect_digests(const json::Value& value, const std::string& prefix, std::map<std::string, std::string>& out);

}  // namespace dsf::bench
