#pragma once
// Metrics of one request and of one level (bench.md 1.4 to 1.9). Pure functions of records, any thread.
//
// Symbols: s release, f first token, o first content, l last token, n completion tokens, p prompt tokens, w_k tokens of the k-th token
// event, K token events. Milliseconds and tokens per second. nullopt means "there is no such number", never zero.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/record.h"
#include "tools/bench/stats.h"

namespace dsf::bench {

struct TokenEvent {
  int64_t t = 0;
  double w = 0;
};
// Token events with their weights: the server's own, or uniform with one token in the first event.
std::vector<TokenEvent> token_events(const Request& r);

struct RequestMetrics {
  std::optional<double> ttfb_ms, ttfr_ms, ttft_ms, ttfo_ms, think_ms, e2e_ms;
  std::optional<double> decode, decode_ref;  // d and d_ref, tokens/s
  std::optional<double> tpot_ms, tokens_per_event, prefill;
  std::vector<double> icl_ms;   // inter-chunk latency: what a reader sees as stutter
  std::vector<Weighted> itl_ms; // gap / w with weight w: the cost of a token
  double zero_gaps = 0;         // number of gaps of exactly 0
  double w1 = 0;                // tokens of the first token event
  double tail = 0;              // tokens after the last token event
  std::string why_no_decode;    // "single_read", "one_token", ...; empty when decode is there
};
RequestMetrics request_metrics(const Request& r);

struct LevelMetrics {
  int64_t planned = 0, ok = 0;
  std::optional<double> win, span, all, sum;        // aggregate decode, tokens/s: the four forms
  std::optional<int64_t> window_lo, window_hi;      // ns; window is null unless hi > lo
  double window_tokens = 0;
  std::optional<double> window_coverage;
  bool window_valid = false;                        // at least 8*C tokens and 4 token events of every stream inside
  bool closed_loop = false;                         // win is the steady-state window of more than C requests
  std::optional<double> stream_min, stream_median, stream_max, stream_mean;
  std::optional<double> prefill, prefill_uncached, prefill_user;  // input tokens/s
  std::optional<double> request_rate, total_token_rate;
  std::vector<double> ttft_ms, ttfr_ms, ttfo_ms, tpot_ms, e2e_ms, icl_ms;
  std::vector<Weighted> itl_ms;
  std::optional<double> tokens_per_event, coalesced_fraction;
  int64_t spread_ns = 0;                            // max release - min release
};
// requests: all planned requests of one (phase, thinking, repeat, c); failed ones count in planned only. With more than c requests (closed loop)
// the window is the steady state: from the first instant at which c streams are live to the last one, less trim of its length at both ends.
LevelMetrics level_metrics(std::span<const Request* const> requests, int64_t c = 0, double trim = 0.1);

// Tokens that arrived while at least c streams were live, from the first such instant to the last, less trim of the length at both ends.
struct SteadyWindow {
  int64_t lo = 0, hi = 0;  // ns
  double tokens = 0;
  double rate() const { return tokens * 1e9 / static_cast<double>(hi - lo); }
};
// nullopt when c streams were never live together, or nothing is left after the trim.
std::optional<SteadyWindow> steady_window(std::span<const Request* const> requests, int64_t c, double trim);

struct Slo {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
};
struct Goodput {
  double requests_per_s = 0, good_fraction = 0, tokens_per_s = 0;
};
std::optional<Goodput> goodput(std::span<const Request* const> requests, const Slo& slo);

// Cached prompt tokens that make a measurement of prefill worthless (bench.md 1.8).
bool contaminated(const Request& r, int64_t tolerance);

}  // namespace dsf::bench
