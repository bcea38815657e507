#include "tools/bench/metrics.h"

#include <algorithm>

namespace dsf::bench {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kNsPerS = 1e9;

std::optional<double> difference_ms(const Stamps::Time& later, const Stamps::Time& earlier) {
  if (!later || !earlier) return std::nullopt;
  return static_cast<double>(*later - *earlier) / kNsPerMs;
}

void decode_metrics(const Request& r, const std::vector<TokenEvent>& events, RequestMetrics& m) {
  const auto n = static_cast<double>(r.n_tokens.value_or(0));
  if (!r.n_tokens || events.empty()) {
    m.why_no_decode = "no_token_events";
    return;
  }
  m.w1 = events.front().w;
  double after_first = 0;
  for (size_t k = 1; k < events.size(); ++k) after_first += events[k].w;
  m.tail = n - m.w1 - after_first;
  m.tokens_per_event = n / static_cast<double>(events.size());
  const auto length_ns = static_cast<double>(*r.t.last_token - *r.t.first_token);
  for (size_t k = 1; k < events.size(); ++k) {
    const double gap_ms = static_cast<double>(events[k].t - events[k - 1].t) / kNsPerMs;
    m.icl_ms.push_back(gap_ms);
    m.zero_gaps += gap_ms == 0 ? 1 : 0;
    if (length_ns > 0 && events[k].w > 0) m.itl_ms.push_back({gap_ms / events[k].w, events[k].w});
  }
  if (n <= 1) {
    m.why_no_decode = "one_token";
    return;
  }
  if (!(length_ns > 0)) {
    m.why_no_decode = events.size() > 1 ? "single_read" : "single_event";
    return;
  }
  m.decode_ref = (n - 1) * kNsPerS / length_ns;
  if (after_first > 0) {
    m.decode = after_first * kNsPerS / length_ns;
    m.tpot_ms = length_ns / kNsPerMs / after_first;
  } else {
    m.why_no_decode = "all_tokens_in_the_first_event";
  }
}

// Instants that bound a level, over the requests that succeeded.
struct Bounds {
  int64_t s_lo = INT64_MAX, s_hi = INT64_MIN, f_lo = INT64_MAX, f_hi = INT64_MIN, l_lo = INT64_MAX, l_hi = INT64_MIN;
};

void window_metrics(std::span<const Request* const> good, const Bounds& b, LevelMetrics& m) {
  if (b.l_lo <= b.f_hi || b.l_hi <= b.f_lo) return;
  m.window_lo = b.f_hi;
  m.window_hi = b.l_lo;
  size_t fewest = SIZE_MAX;
  for (const Request* r : good) {
    size_t inside = 0;
    for (const auto& e : token_events(*r)) {
      if (e.t <= b.f_hi || e.t > b.l_lo) continue;  // half open: the event that opens the window is outside
      ++inside;
      m.window_tokens += e.w;
    }
    fewest = std::min(fewest, inside);
  }
  m.win = m.window_tokens * kNsPerS / static_cast<double>(b.l_lo - b.f_hi);
  m.window_coverage = static_cast<double>(b.l_lo - b.f_hi) / static_cast<double>(b.l_hi - b.f_lo);
  m.window_valid = m.window_tokens >= 8.0 * static_cast<double>(m.planned) && fewest >= 4;
}

// The same for a closed loop, whose streams never are all live.
void steady_metrics(std::span<const Request* const> good, const Bounds& b, int64_t c, double trim, LevelMetrics& m) {
  m.closed_loop = true;
  const auto window = steady_window(good, c, trim);
  if (!window || b.l_hi <= b.f_lo) return;
  m.window_lo = window->lo;
  m.window_hi = window->hi;
  m.window_tokens = window->tokens;
  m.win = window->rate();
  m.window_coverage = static_cast<double>(window->hi - window->lo) / static_cast<double>(b.l_hi - b.f_lo);
  m.window_valid = m.window_tokens >= 8.0 * static_cast<double>(c);
}

// Per-request values gathered over a level.
struct Sums {
  double n = 0, w1 = 0, p = 0, cached = 0, events = 0, gaps = 0, zero_gaps = 0;
  bool any_decode = false, all_prompt_counts = true, all_counts = true;
  std::vector<double> stream, user;
};

void add_request(const Request& r, LevelMetrics& m, Sums& sums) {
  const RequestMetrics q = request_metrics(r);
  const auto keep = [](std::vector<double>& to, const std::optional<double>& v) {
    if (v) to.push_back(*v);
  };
  keep(m.ttft_ms, q.ttft_ms);
  keep(m.ttfr_ms, q.ttfr_ms);
  keep(m.ttfo_ms, q.ttfo_ms);
  keep(m.tpot_ms, q.tpot_ms);
  keep(m.e2e_ms, q.e2e_ms);
  keep(sums.stream, q.decode);
  keep(sums.user, q.prefill);
  m.icl_ms.insert(m.icl_ms.end(), q.icl_ms.begin(), q.icl_ms.end());
  m.itl_ms.insert(m.itl_ms.end(), q.itl_ms.begin(), q.itl_ms.end());
  sums.n += static_cast<double>(r.n_tokens.value_or(0));
  sums.w1 += q.w1;
  sums.events += static_cast<double>(std::count_if(r.events.begin(), r.events.end(), [](const EventRow& e) { return is_token(e.kind); }));
  sums.gaps += static_cast<double>(q.icl_ms.size());
  sums.zero_gaps += q.zero_gaps;
  sums.any_decode = sums.any_decode || q.decode.has_value() || q.decode_ref.has_value();
  sums.all_counts = sums.all_counts && r.n_tokens.has_value();
  sums.all_prompt_counts = sums.all_prompt_counts && r.usage.prompt.has_value();
  sums.p += static_cast<double>(r.usage.prompt.value_or(0));
  sums.cached += static_cast<double>(r.usage.cached.value_or(0));
}

}  // namespace

std::vector<TokenEvent> token_events(const Request& r) {
  std::vector<TokenEvent> out;
  bool known = r.weight_source != "uniform";
  for (const auto& e : r.events) {
    if (!is_token(e.kind)) continue;
    known = known && e.tok.has_value();
    out.push_back({e.t, static_cast<double>(e.tok.value_or(0))});
  }
  if (known || out.empty()) return out;
  // Uniform: the first event holds the one token that the prefill sampled; the rest is spread evenly.
  const auto n = static_cast<double>(r.n_tokens.value_or(0));
  if (out.size() == 1) {
    out.front().w = n;
    return out;
  }
  for (auto& e : out) e.w = (n - 1) / static_cast<double>(out.size() - 1);
  out.front().w = 1;
  return out;
}

RequestMetrics request_metrics(const Request& r) {
  RequestMetrics m;
  m.ttfb_ms = difference_ms(r.t.first_byte, r.t.release);
  m.ttfr_ms = difference_ms(r.t.first_event, r.t.release);
  m.ttft_ms = difference_ms(r.t.first_token, r.t.release);
  m.ttfo_ms = difference_ms(r.t.first_content, r.t.release);
  m.think_ms = difference_ms(r.t.first_content, r.t.first_token);
  m.e2e_ms = difference_ms(r.t.last_token, r.t.release);
  if (m.ttft_ms && *m.ttft_ms > 0 && r.usage.prompt) m.prefill = static_cast<double>(*r.usage.prompt) * 1000 / *m.ttft_ms;
  decode_metrics(r, token_events(r), m);
  return m;
}

std::optional<SteadyWindow> steady_window(std::span<const Request* const> requests, int64_t c, double trim) {
  std::vector<std::pair<int64_t, int>> steps;  // a stream begins or ends to be live; ends come before beginnings of the same instant
  for (const Request* r : requests) {
    if (!r->t.first_token || !r->t.last_token) continue;
    steps.emplace_back(*r->t.first_token, 1);
    steps.emplace_back(*r->t.last_token, -1);
  }
  std::sort(steps.begin(), steps.end());
  std::optional<int64_t> lo, hi;
  int64_t live = 0;
  for (const auto& [t, step] : steps) {
    if (step < 0 && live == c) hi = t;
    live += step;
    if (step > 0 && live == c && !lo) lo = t;
  }
  if (!lo || !hi || *hi <= *lo) return std::nullopt;
  const auto cut = static_cast<int64_t>(trim * static_cast<double>(*hi - *lo));
  SteadyWindow out{*lo + cut, *hi - cut, 0};
  if (out.hi <= out.lo) return std::nullopt;
  for (const Request* r : requests) {
    for (const auto& e : token_events(*r)) out.tokens += e.t > out.lo && e.t <= out.hi ? e.w : 0;
  }
  return out;
}

LevelMetrics level_metrics(std::span<const Request* const> requests, int64_t c, double trim) {
  LevelMetrics m;
  m.planned = static_cast<int64_t>(requests.size());
  std::vector<const Request*> good;
  Bounds b;
  for (const Request* r : requests) {
    if (r->t.release) {
      b.s_lo = std::min(b.s_lo, *r->t.release);
      b.s_hi = std::max(b.s_hi, *r->t.release);
    }
    if (!r->ok()) continue;
    ++m.ok;
    if (!r->t.first_token || !r->t.last_token || !r->t.release) continue;
    good.push_back(r);
    b.f_lo = std::min(b.f_lo, *r->t.first_token);
    b.f_hi = std::max(b.f_hi, *r->t.first_token);
    b.l_lo = std::min(b.l_lo, *r->t.last_token);
    b.l_hi = std::max(b.l_hi, *r->t.last_token);
  }
  if (b.s_hi >= b.s_lo) m.spread_ns = b.s_hi - b.s_lo;
  if (good.empty()) return m;
  Sums sums;
  for (const Request* r : good) add_request(*r, m, sums);
  if (sums.any_decode && sums.all_counts) {
    c > 0 && m.planned > c ? steady_metrics(good, b, c, trim, m) : window_metrics(good, b, m);
    if (b.l_hi > b.f_lo) {
      m.span = (sums.n - sums.w1) * kNsPerS / static_cast<double>(b.l_hi - b.f_lo);
      m.all = sums.n * kNsPerS / static_cast<double>(b.l_hi - b.f_lo);
    }
  }
  if (sums.stream.size() == good.size()) {
    m.sum = 0;
    for (const double d : sums.stream) *m.sum += d;
  }
  m.stream_min = min_of(sums.stream);
  m.stream_max = max_of(sums.stream);
  m.stream_median = median(sums.stream);
  m.stream_mean = mean(sums.stream);
  const auto makespan = static_cast<double>(b.f_hi - b.s_lo);
  if (sums.all_prompt_counts && makespan > 0) {
    m.prefill = sums.p * kNsPerS / makespan;
    m.prefill_uncached = (sums.p - sums.cached) * kNsPerS / makespan;
    m.prefill_user = mean(sums.user);
  }
  if (b.l_hi > b.s_lo) {
    m.request_rate = static_cast<double>(good.size()) * kNsPerS / static_cast<double>(b.l_hi - b.s_lo);
    m.total_token_rate = (sums.p + sums.n) * kNsPerS / static_cast<double>(b.l_hi - b.s_lo);
  }
  if (sums.events > 0 && sums.all_counts) m.tokens_per_event = sums.n / sums.events;
  if (sums.gaps > 0) m.coalesced_fraction = sums.zero_gaps / sums.gaps;
  return m;
}

std::optional<Goodput> goodput(std::span<const Request* const> requests, const Slo& slo) {
  int64_t s_lo = INT64_MAX, l_hi = INT64_MIN;
  double good = 0, tokens = 0;
  const auto met = [](const std::optional<double>& bound, const std::optional<double>& value) {
    return !bound || (value && *value <= *bound);
  };
  for (const Request* r : requests) {
    if (r->t.release) s_lo = std::min(s_lo, *r->t.release);
    if (!r->ok() || !r->t.last_token) continue;
    l_hi = std::max(l_hi, *r->t.last_token);
    const RequestMetrics m = request_metrics(*r);
    const bool tpot = r->n_tokens == 1 || met(slo.tpot_ms, m.tpot_ms);  // one token has no rate to bound
    if (!met(slo.ttft_ms, m.ttft_ms) || !tpot || !met(slo.e2e_ms, m.e2e_ms)) continue;
    good += 1;
    tokens += static_cast<double>(r->n_tokens.value_or(0));
  }
  if (requests.empty() || l_hi <= s_lo) return std::nullopt;
  const double seconds = static_cast<double>(l_hi - s_lo) / kNsPerS;
  return Goodput{good / seconds, good / static_cast<double>(requests.size()), tokens / seconds};
}

bool contaminated(const Request& r, int64_t tolerance) {
  if (!r.usage.cached || !r.usage.prompt) return false;
  return *r.usage.cached > tolerance || static_cast<double>(*r.usage.cached) > 0.15 * static_cast<double>(*r.usage.prompt);
}

}  // namespace dsf::bench
