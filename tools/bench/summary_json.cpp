// summary.json (bench.md 3.2). Order of members is that of the specification.
#include "dsf/cli/version.h"
#include "tools/bench/summary.h"

namespace dsf::bench {
namespace {

using json::Value;

Value number(const std::optional<double>& v) { return v ? Value(*v) : Value(); }

Value numbers(const std::vector<std::optional<double>>& values) {
  json::Array out;
  for (const auto& v : values) out.push_back(number(v));
  return out;
}

Value texts(const std::vector<std::string>& values) {
  json::Array out;
  for (const auto& v : values) out.emplace_back(v);
  return out;
}

Value min_median_max(const std::vector<double>& values) {
  return json::Object{{"min", number(min_of(values))}, {"median", number(median(values))}, {"max", number(max_of(values))}};
}

// All repeats of one list of values.
std::vector<double> pooled(const Cell& cell, std::vector<double> LevelMetrics::* list) {
  std::vector<double> out;
  for (const auto& m : cell.runs) out.insert(out.end(), (m.*list).begin(), (m.*list).end());
  return out;
}

Value decode_json(const Cell& cell) {
  const LevelMetrics& m = cell.runs.front();
  Value out = Value::object();
  out.set("value", number(cell.decode));
  out.set("form", cell.decode_form.empty() ? Value() : Value(cell.decode_form));
  out.set("win", number(m.win));
  out.set("span", number(m.span));
  out.set("all", number(m.all));
  out.set("sum", number(m.sum));
  out.set("d", number(cell.decode_d));
  out.set("d_ref", number(cell.decode_ref));
  out.set("per_stream", json::Object{{"min", number(m.stream_min)}, {"median", number(m.stream_median)}, {"max", number(m.stream_max)}});
  out.set("repeats", numbers(cell.decode_repeats));
  return out;
}

Value window_json(const LevelMetrics& m) {
  if (!m.window_lo) return nullptr;
  return json::Object{{"lo", *m.window_lo}, {"hi", *m.window_hi}, {"tokens", m.window_tokens}, {"coverage", number(m.window_coverage)}, {"valid", m.window_valid}};
}

Value counts_json(const Cell& cell, const std::optional<int64_t>& (*pick)(const Request&)) {
  json::Array out;
  for (const Request* r : cell.requests) {
    const auto& v = pick(*r);
    if (v) out.emplace_back(*v);
    else out.emplace_back();
  }
  return out;
}

void set_latencies(const Cell& cell, Value& out) {
  out.set("ttft_ms", min_median_max(pooled(cell, &LevelMetrics::ttft_ms)));
  out.set("ttfr_ms", min_median_max(pooled(cell, &LevelMetrics::ttfr_ms)));
  out.set("ttfo_ms", min_median_max(pooled(cell, &LevelMetrics::ttfo_ms)));
  out.set("tpot_ms", min_median_max(pooled(cell, &LevelMetrics::tpot_ms)));
  out.set("e2e_ms", min_median_max(pooled(cell, &LevelMetrics::e2e_ms)));
  std::vector<Weighted> itl;
  for (const auto& m : cell.runs) itl.insert(itl.end(), m.itl_ms.begin(), m.itl_ms.end());
  out.set("itl_ms", json::Object{{"mean", number(weighted_mean(itl))}, {"p50", number(weighted_quantile(itl, 0.5))}, {"max", number(weighted_quantile(itl, 1))}});
  out.set("icl_ms", min_median_max(pooled(cell, &LevelMetrics::icl_ms)));
}

Value cell_json(const Cell& cell) {
  const LevelMetrics& m = cell.runs.front();
  Value out = Value::object();
  out.set("c", cell.c);
  out.set("planned", cell.planned);
  out.set("ok", cell.ok);
  out.set("complete", cell.complete);
  out.set("eligible", cell.eligible);
  out.set("flags", texts(cell.flags));
  out.set("window", window_json(m));
  out.set("prompt_tokens", counts_json(cell, [](const Request& r) -> const std::optional<int64_t>& { return r.usage.prompt; }));
  out.set("completion_tokens", counts_json(cell, [](const Request& r) -> const std::optional<int64_t>& { return r.n_tokens; }));
  out.set("cached_tokens", counts_json(cell, [](const Request& r) -> const std::optional<int64_t>& { return r.usage.cached; }));
  out.set("decode", decode_json(cell));
  out.set("attempts", cell.attempts);
  out.set("prefill", json::Object{{"value", number(cell.prefill)}, {"uncached", number(m.prefill_uncached)}, {"user_mean", number(m.prefill_user)},
                                  {"less_floor", number(cell.prefill_less_floor)}, {"repeats", numbers(cell.prefill_repeats)}});
  set_latencies(cell, out);
  out.set("tokens_per_event", number(m.tokens_per_event));
  out.set("coalesced_fraction", number(m.coalesced_fraction));
  out.set("request_rate", number(m.request_rate));
  out.set("total_token_rate", number(m.total_token_rate));
  out.set("goodput", cell.good ? Value(json::Object{{"requests_per_s", cell.good->requests_per_s}, {"good_fraction", cell.good->good_fraction}, {"tokens_per_s", cell.good->tokens_per_s}}) : Value());
  out.set("spec", json::Object{{"tokens_per_round", number(cell.tokens_per_round)}, {"drafted", number(cell.server.drafted)}, {"accepted", number(cell.server.accepted)}});
  out.set("cache_hit_fraction", number(cell.server.cache_hit_fraction));
  out.set("client", json::Object{{"cpu_fraction", cell.cpu_fraction}, {"lag_max_ns", cell.lag_max_ns}, {"spread_ns", m.spread_ns}});
  return out;
}

Value pass_json(const Pass& pass) {
  Value out = Value::object();
  out.set("phase", pass.phase);
  out.set("thinking", pass.thinking);
  out.set("settings_sha256", pass.settings_sha256);
  out.set("repeats", static_cast<int64_t>(pass.pass_sha256.size()));
  out.set("pass_sha256", texts(pass.pass_sha256));
  out.set("requests", json::Object{{"planned", pass.planned}, {"ok", pass.ok}, {"failed", pass.planned - pass.ok}});
  out.set("decode_formula", pass.decode_formula);
  out.set("weight_source", pass.weight_source.empty() ? Value() : Value(pass.weight_source));
  out.set("cache_evidence", pass.cache_evidence);
  out.set("token_check", pass.token_check);
  out.set("thinking_check", pass.thinking_check);
  Value latencies = min_median_max(pass.ttft_ms);  // of 36 values: the quantiles that so many admit
  latencies.set("p90", number(quantile(pass.ttft_ms, 0.9)));
  latencies.set("p95", number(quantile(pass.ttft_ms, 0.95)));
  out.set("ttft_ms_all_levels", std::move(latencies));
  json::Array cells;
  for (const auto& cell : pass.cells) cells.push_back(cell_json(cell));
  out.set("cells", std::move(cells));
  return out;
}

Value headline_json(const Summary& s) {
  Value out = Value::object();
  for (const auto& pass : s.passes) {
    if (out.find(pass.thinking) == nullptr) out.set(pass.thinking, Value::object());
    Value& mode = *out.find(pass.thinking);
    const Cell* c1 = pass.cell(1);
    if (pass.phase == "decode") {
      mode.set("decode_c1", c1 != nullptr && c1->eligible ? number(c1->decode) : Value());
      continue;
    }
    const Cell* best = pass.best_prefill();
    std::vector<double> values;
    for (const auto& cell : pass.cells) {
      if (cell.eligible && cell.prefill) values.push_back(*cell.prefill);
    }
    mode.set("prefill_best", best != nullptr ? number(best->prefill) : Value());
    mode.set("prefill_best_c", best != nullptr ? Value(best->c) : Value());
    mode.set("prefill_c1", c1 != nullptr && c1->eligible ? number(c1->prefill) : Value());
    mode.set("prefill_median", number(median(values)));
  }
  return out;
}

Value client_json(const Summary& s) {
  double cpu = 0;
  int64_t spread = 0, lag = 0;
  for (const auto& pass : s.passes) {
    for (const auto& cell : pass.cells) {
      cpu = std::max(cpu, cell.cpu_fraction);
      lag = std::max(lag, cell.lag_max_ns);
      for (const auto& m : cell.runs) spread = std::max(spread, m.spread_ns);
    }
  }
  const Value* client = s.run.find("client");
  const Value* selftest = client == nullptr ? nullptr : client->find("selftest");
  return json::Object{{"cpu_fraction_max", cpu}, {"lag_max_ns", lag}, {"spread_max_ns", spread}, {"clock", "CLOCK_MONOTONIC"}, {"selftest", selftest == nullptr ? Value() : *selftest}};
}

Value thresholds_json(const Summary& s) {
  json::Array out;
  for (const auto& t : s.thresholds) out.push_back(json::Object{{"expr", t.expr}, {"value", number(t.value)}, {"pass", t.pass}});
  return out;
}

}  // namespace

Value to_json(const Summary& s) {
  Value out = Value::object();
  out.set("schema", kSummarySchema);
  out.set("v", 1);
  out.set("created_by", cli::tool_id("dsf-bench"));
  out.set("inputs", json::Array{json::Object{{"path", "run.json"}, {"sha256", s.run_sha256}}, json::Object{{"path", "raw.jsonl.zst"}, {"sha256", s.raw_sha256}}});
  out.set("run_id", s.run_id);
  out.set("state", s.state);
  out.set("label", s.label);
  out.set("model", s.model);
  Value identity = Value::object();
  for (const auto& [name, value] : weight_digests(s.run)) identity.set(name, value);
  out.set("weights", std::move(identity));
  json::Array passes;
  for (const auto& pass : s.passes) passes.push_back(pass_json(pass));
  out.set("passes", std::move(passes));
  out.set("headline", headline_json(s));
  out.set("client", client_json(s));
  out.set("validity", json::Object{{"ok", s.reasons.empty()}, {"reasons", texts(s.reasons)}});
  out.set("thresholds", thresholds_json(s));
  return out;
}

}  // namespace dsf::bench
