#pragma once
// Cells, passes and headlines of one run, computed from its records alone (bench.md 1.6 to 1.8, 3.2). Pure functions, any thread.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/metrics.h"
#include "tools/bench/run_data.h"
#include "tools/bench/scrape.h"

namespace dsf::bench {

inline constexpr std::string_view kSummarySchema = "bench.summary/1";

struct Cell {
  int64_t c = 1;
  std::vector<LevelMetrics> runs;  // by repeat
  int64_t planned = 0, ok = 0;
  bool complete = false;           // every planned request succeeded, in every repeat
  bool eligible = false;           // may be a headline or be compared
  bool cached = false;             // contaminated by a prefix cache
  std::vector<std::string> flags;
  std::vector<const Request*> requests;  // repeat by repeat, slot by slot; borrowed from RunData
  std::optional<double> decode;    // median over repeats
  std::string decode_form;         // "d", "d_ref", "window", "span"; empty: no decode number
  std::vector<std::optional<double>> decode_repeats;
  std::optional<double> decode_d, decode_ref;  // C1 only: both forms
  std::optional<double> prefill, prefill_less_floor;  // the second: mean of p / (TTFR - floor), with --latency-probe
  std::vector<std::optional<double>> prefill_repeats;
  std::optional<Goodput> good;
  ServerDelta server;
  std::optional<double> tokens_per_round;  // draft acceptance, from the server's own blocks in the streams, else from its counters
  int64_t attempts = 1;                    // 2 and more: the level was run again after failures
  double cpu_fraction = 0;
  int64_t lag_max_ns = 0;
};

struct Pass {
  std::string phase, thinking;
  json::Value settings;
  std::string settings_sha256;
  std::vector<std::string> pass_sha256;  // by repeat
  int64_t planned = 0, ok = 0;
  std::string decode_formula;   // "d" when every request knows its weights, else "d_ref"
  std::string weight_source;    // of all requests, "mixed" when they differ
  std::string cache_evidence;   // "usage", "metrics", "none"
  std::string token_check;      // worst of the repeats
  std::string thinking_check;   // "verified", "unverified", "mismatch"
  std::vector<double> ttft_ms;  // of all levels and repeats together
  std::vector<Cell> cells;      // C ascending
  const Cell* cell(int64_t c) const;
  // Best prefill over eligible cells, ties to the smaller C.
  const Cell* best_prefill() const;
};

struct ThresholdResult {
  std::string expr;
  std::optional<double> value;
  bool pass = false;
};

struct Summary {
  std::string run_id, label, model, state;
  std::vector<Pass> passes;
  std::vector<std::string> reasons;        // classes that make the run invalid; empty: valid
  std::vector<ThresholdResult> thresholds;
  json::Value run;                         // run.json, for reports
  std::string run_sha256, raw_sha256;
  const Pass* pass(std::string_view phase, std::string_view thinking) const;
};

// data must outlive the summary (cells borrow its requests). Errors: kContent when run.json lacks what it needs.
Result<Summary> summarize(const RunData& data);
json::Value to_json(const Summary& summary);

// Exit code for the classes: the first of 70, 6, 4, 3, 1 that applies, 0 when there are none.
Code exit_code(const std::vector<std::string>& reasons);

}  // namespace dsf::bench
