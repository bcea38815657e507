#include "tools/bench/summary.h"

#include <algorithm>
#include <array>
#include <map>

#include "tools/bench/pass_checks.h"
#include "tools/bench/settings.h"
#include "tools/bench/thresholds.h"

namespace dsf::bench {
namespace {

using json::Cursor;
using json::Value;

// What of run.json rules the computation.
struct Rules {
  int64_t cache_tolerance = 64, allow_failures = 0;
  bool allow_cached = false, incoherent = false;
  std::optional<double> latency_floor_ms;
  Slo slo;
  std::vector<std::string> fail_under, fail_over;
};

Result<std::vector<std::string>> strings(const Cursor& at, std::string_view key) {
  std::vector<std::string> out;
  const auto list = at.maybe(key);
  if (!list) return out;
  DSF_TRY(const std::vector<Cursor> elements, list->elements());
  for (const auto& e : elements) {
    DSF_TRY(std::string s, e.string());
    out.push_back(std::move(s));
  }
  return out;
}

Result<Rules> read_rules(const Cursor& run) {
  Rules out;
  DSF_TRY(const Cursor rules, run.at("rules"));
  DSF_TRY(out.cache_tolerance, rules.integer_at("cache_tolerance", 0));
  DSF_TRY(out.allow_failures, rules.integer_at("allow_failures", 0));
  DSF_TRY(out.allow_cached, rules.boolean_or("allow_cached", false));
  DSF_TRY(out.fail_under, strings(rules, "fail_under"));
  DSF_TRY(out.fail_over, strings(rules, "fail_over"));
  if (const auto probe = run.maybe("probe")) {
    if (const auto latency = probe->maybe("latency")) out.latency_floor_ms = latency->maybe("floor_ms") ? latency->value().find("floor_ms")->to_double() : std::nullopt;
    if (const auto coherence = probe->maybe("coherence")) {
      DSF_TRY(const bool ok, coherence->boolean_or("ok", true));
      out.incoherent = !ok;
    }
  }
  if (const auto slo = rules.maybe("slo")) {
    const auto bound = [&](std::string_view key) { return slo->maybe(key) ? slo->value().find(key)->to_double() : std::nullopt; };
    out.slo = {bound("ttft_ms"), bound("tpot_ms"), bound("e2e_ms")};
  }
  return out;
}

std::optional<double> median_of(const std::vector<std::optional<double>>& values) {
  std::vector<double> known;
  for (const auto& v : values) {
    if (v) known.push_back(*v);
  }
  return known.size() == values.size() ? median(known) : std::nullopt;  // a missing repeat is a missing number
}

void choose_decode(Cell& cell, const std::string& formula) {
  if (cell.c == 1 && !cell.runs.front().closed_loop) {
    std::vector<std::optional<double>> d, ref;
    for (const Request* r : cell.requests) {
      const RequestMetrics m = request_metrics(*r);
      d.push_back(r->ok() ? m.decode : std::nullopt);
      ref.push_back(r->ok() ? m.decode_ref : std::nullopt);
    }
    cell.decode_d = median_of(d);
    cell.decode_ref = median_of(ref);
    cell.decode_form = formula;
    cell.decode_repeats = formula == "d" ? d : ref;
    cell.decode = median_of(cell.decode_repeats);
    if (cell.decode_d && cell.decode_ref && *cell.decode_ref / *cell.decode_d > 1.02) cell.flags.emplace_back("bundled_first_event");
  } else {
    const bool window = std::all_of(cell.runs.begin(), cell.runs.end(), [](const LevelMetrics& m) { return m.window_valid; });
    cell.decode_form = window ? "window" : "span";
    for (const auto& m : cell.runs) cell.decode_repeats.push_back(window ? m.win : m.span);
    cell.decode = median_of(cell.decode_repeats);
    if (!window && cell.decode) cell.flags.emplace_back("window_short");
  }
  if (!cell.decode) cell.decode_form.clear();
}

void client_facts(Cell& cell, const std::vector<const LevelRecord*>& levels) {
  for (const LevelRecord* level : levels) {
    const double fraction = level->wall_ns > 0 ? static_cast<double>(level->cpu_ns) / static_cast<double>(level->wall_ns) : 0;
    cell.cpu_fraction = std::max(cell.cpu_fraction, fraction);
    cell.lag_max_ns = std::max(cell.lag_max_ns, level->lag_max_ns);
    if (level->spread_ns > 10'000'000) cell.flags.emplace_back("barrier_spread");
    if (!level->before.empty() && !level->after.empty()) cell.server = difference(level->before, level->after);
    cell.attempts = std::max(cell.attempts, level->attempt + 1);
  }
  if (cell.cpu_fraction > 0.5 || cell.lag_max_ns > 5'000'000) cell.flags.emplace_back("client_bound");
}

// Draft acceptance as engines report it inside a stream: {"rounds": N, "accepted": N} or "tokens_per_round", in any member that we do not know.
void find_rounds(const Value& value, double& rounds, double& tokens) {
  if (!value.is_object()) return;
  const auto number = [&](std::string_view key) { return value.find(key) == nullptr ? std::nullopt : value.find(key)->to_double(); };
  const auto r = number("rounds"), accepted = number("accepted"), each = number("tokens_per_round");
  if (r && *r > 0 && (accepted || each)) {
    rounds += *r;
    tokens += accepted ? *r + *accepted : *r * *each;
    return;
  }
  if (each && !r) {
    rounds += 1;
    tokens += *each;
    return;
  }
  for (const auto& [key, member] : value.as_object()) find_rounds(member, rounds, tokens);
}

void draft_acceptance(Cell& cell) {
  double rounds = 0, tokens = 0;
  for (const Request* r : cell.requests) {
    if (r->ok()) find_rounds(r->server_ext, rounds, tokens);
  }
  cell.tokens_per_round = rounds > 0 ? std::optional(tokens / rounds) : cell.server.tokens_per_round;
}

void less_floor(Cell& cell, double floor_ms) {
  std::vector<double> rates;
  for (const Request* r : cell.requests) {
    const auto ttfr_ms = request_metrics(*r).ttfr_ms;
    if (r->ok() && ttfr_ms && *ttfr_ms > floor_ms && r->usage.prompt) rates.push_back(static_cast<double>(*r->usage.prompt) * 1000 / (*ttfr_ms - floor_ms));
  }
  cell.prefill_less_floor = mean(rates);
}

// In a one-token phase a first token far below its level's median has probably come out of a cache.
void suspicious_ttft(Cell& cell) {
  for (const auto& m : cell.runs) {
    const auto middle = median(m.ttft_ms), least = min_of(m.ttft_ms);
    if (m.ttft_ms.size() > 1 && *least < 0.4 * *middle) cell.flags.emplace_back("suspicious_ttft");
  }
}

void unique_flags(std::vector<std::string>& flags) {
  std::vector<std::string> out;
  for (auto& f : flags) {
    if (std::find(out.begin(), out.end(), f) == out.end()) out.push_back(std::move(f));
  }
  flags = std::move(out);
}

// Flags of requests that make their cell worthless for a headline.
constexpr std::array<std::string_view, 3> kDisqualifying = {"count_mismatch", "usage_missing", "prompt_count_missing"};

void judge_cell(Cell& cell, const Rules& rules, const std::string& evidence) {
  bool good_counts = true;
  for (const Request* r : cell.requests) {
    for (const auto& f : r->flags) cell.flags.push_back(f);
    if (!r->ok()) continue;
    good_counts = good_counts && r->counts_exact();
    for (const auto f : kDisqualifying) good_counts = good_counts && !r->has_flag(f);
    if (contaminated(*r, rules.cache_tolerance)) cell.cached = true;
  }
  if (evidence == "metrics" && cell.server.cache_hit_fraction.value_or(0) >= 0.01) cell.cached = true;
  if (cell.cached) cell.flags.emplace_back("cached");
  if (!cell.complete) cell.flags.emplace_back("incomplete");
  unique_flags(cell.flags);
  cell.eligible = cell.complete && good_counts && (!cell.cached || rules.allow_cached) && cell.cpu_fraction <= 0.8;
}

Cell make_cell(const RunData& data, const Pass& pass, int64_t c, int64_t repeats, const Rules& rules) {
  Cell cell;
  cell.c = c;
  const Value* closed_loop = pass.settings.find("requests_per_level");
  const int64_t planned = closed_loop == nullptr ? c : std::max(c, closed_loop->to_i64().value_or(c));
  const double trim = closed_loop == nullptr ? 0 : pass.settings.find("steady_trim")->to_double().value_or(0);
  std::vector<const LevelRecord*> levels;
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    std::vector<const Request*> group;
    for (const auto& r : data.requests) {
      if (r.phase == pass.phase && r.thinking == pass.thinking && r.c == c && r.repeat == repeat) group.push_back(&r);
    }
    std::sort(group.begin(), group.end(), [](const Request* a, const Request* b) { return a->slot < b->slot; });
    cell.runs.push_back(level_metrics(group, c, trim));
    cell.runs.back().planned = planned;
    cell.ok += cell.runs.back().ok;
    cell.requests.insert(cell.requests.end(), group.begin(), group.end());
    for (const auto& l : data.levels) {
      if (l.phase == pass.phase && l.thinking == pass.thinking && l.c == c && l.repeat == repeat) levels.push_back(&l);
    }
  }
  cell.planned = planned * repeats;
  cell.complete = cell.ok == cell.planned;
  client_facts(cell, levels);
  if (pass.phase == "decode") choose_decode(cell, pass.decode_formula);
  else suspicious_ttft(cell);
  draft_acceptance(cell);
  if (rules.latency_floor_ms) less_floor(cell, *rules.latency_floor_ms);
  for (const auto& m : cell.runs) cell.prefill_repeats.push_back(m.prefill);
  cell.prefill = median_of(cell.prefill_repeats);
  if (repeats == 1 && (rules.slo.ttft_ms || rules.slo.tpot_ms || rules.slo.e2e_ms)) cell.good = goodput(cell.requests, rules.slo);
  judge_cell(cell, rules, pass.cache_evidence);
  return cell;
}

Result<Pass> make_pass(const RunData& data, const Cursor& at, const Rules& rules) {
  Pass pass;
  DSF_TRY(pass.phase, at.string_at("phase"));
  DSF_TRY(pass.thinking, at.string_at("thinking"));
  pass.settings = at.value();
  pass.settings_sha256 = settings_sha256(at.value());
  DSF_TRY(const int64_t repeats, at.integer_at("repeats", 1, 10'000));
  DSF_TRY(const Cursor levels_at, at.at("levels"));
  DSF_TRY(const std::vector<int64_t> levels, levels_at.integers(1, 100'000));
  check_pass(data, pass, repeats);
  for (const int64_t c : levels) {
    pass.cells.push_back(make_cell(data, pass, c, repeats, rules));
    pass.planned += pass.cells.back().planned;
    pass.ok += pass.cells.back().ok;
    for (const auto& m : pass.cells.back().runs) pass.ttft_ms.insert(pass.ttft_ms.end(), m.ttft_ms.begin(), m.ttft_ms.end());
  }
  return pass;
}

void add_reason(std::vector<std::string>& reasons, std::string_view reason) {
  if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.emplace_back(reason);
}

void judge(Summary& s, const Rules& rules) {
  int64_t failed = 0;
  for (const auto& pass : s.passes) {
    failed += pass.planned - pass.ok;
    if (pass.thinking_check == "mismatch") add_reason(s.reasons, "thinking_mismatch");
    if (pass.token_check == "count_mismatch") add_reason(s.reasons, "count_mismatch");
    for (const auto& cell : pass.cells) {
      const auto has = [&](std::string_view f) { return std::find(cell.flags.begin(), cell.flags.end(), f) != cell.flags.end(); };
      if (cell.cached && !rules.allow_cached) add_reason(s.reasons, "contaminated");
      if (has("usage_missing") || has("prompt_count_missing")) add_reason(s.reasons, "estimated_counts");
      if (has("count_mismatch")) add_reason(s.reasons, "count_mismatch");
      if (cell.cpu_fraction > 0.8) add_reason(s.reasons, "client_bound");
    }
  }
  if (rules.incoherent) add_reason(s.reasons, "incoherent");
  if (s.state != "complete") add_reason(s.reasons, "not_complete");
  else if (failed > rules.allow_failures) add_reason(s.reasons, "requests_failed");
}

}  // namespace

const Cell* Pass::cell(int64_t c) const {
  const auto it = std::find_if(cells.begin(), cells.end(), [&](const Cell& x) { return x.c == c; });
  return it == cells.end() ? nullptr : &*it;
}

const Cell* Pass::best_prefill() const {
  const Cell* best = nullptr;
  for (const auto& cell : cells) {
    if (cell.eligible && cell.prefill && (best == nullptr || *cell.prefill > *best->prefill)) best = &cell;
  }
  return best;
}

const Pass* Summary::pass(std::string_view phase, std::string_view thinking) const {
  const auto it = std::find_if(passes.begin(), passes.end(), [&](const Pass& p) { return p.phase == phase && p.thinking == thinking; });
  return it == passes.end() ? nullptr : &*it;
}

Result<Summary> summarize(const RunData& data) {
  Summary s;
  const Cursor run(data.run, (data.dir / "run.json").string());
  DSF_TRY(s.run_id, run.string_at("run_id"));
  DSF_TRY(s.label, run.string_at("label"));
  DSF_TRY(s.model, run.string_at("model"));
  s.state = data.state;
  s.run = data.run;
  s.run_sha256 = data.run_sha256;
  s.raw_sha256 = data.raw_sha256;
  DSF_TRY(const Rules rules, read_rules(run));
  DSF_TRY(const Cursor passes, run.at("passes"));
  DSF_TRY(const std::vector<Cursor> elements, passes.elements());
  for (const auto& element : elements) {
    DSF_TRY(Pass pass, make_pass(data, element, rules));
    s.passes.push_back(std::move(pass));
  }
  judge(s, rules);
  for (const auto& [list, under] : {std::pair(&rules.fail_under, true), std::pair(&rules.fail_over, false)}) {
    for (const auto& expr : *list) {
      DSF_TRY(const Threshold t, parse_threshold(expr));
      s.thresholds.push_back(check_threshold(s, t, under));
      if (!s.thresholds.back().pass) add_reason(s.reasons, "threshold");
    }
  }
  return s;
}

Code exit_code(const std::vector<std::string>& reasons) {
  if (reasons.empty()) return Code::kOk;
  return std::find(reasons.begin(), reasons.end(), "requests_failed") != reasons.end() ? Code::kRemote : Code::kNo;
}

}  // namespace dsf::bench
