#include "tools/bench/options.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "tools/bench/rate.h"
#include "tools/bench/thresholds.h"

namespace dsf::bench {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ',') out.emplace_back();
    else out.back() += c;
  }
  return out;
}

Unexpected usage(std::string subject, std::string what, std::string fix) { return fail(Code::kUsage, std::move(subject), std::move(what), std::move(fix), "arguments"); }

Result<int64_t> whole_number(const char* flag, const std::string& text) {
  const auto v = parse_i64(text);
  if (!v || *v < 1 || *v > 1'000'000) return usage(flag, "'" + text + "' is no number from 1 to 1000000", "write it like 27, or 27,270 for a sweep");
  return *v;
}

bool known_thinking(const std::string& t) {
  for (const char* name : {"off", "on", "low", "medium", "high", "max"}) {
    if (t == name) return true;
  }
  const auto n = parse_u64(t);
  return n && *n >= 1 && *n <= 100 && std::to_string(*n) == t;
}

Result<void> fill_settings(const RawOptions& raw, Settings& s) {
  s.seed = static_cast<uint64_t>(raw.seed);
  DSF_TRY(s.input_lines, whole_number("--input-lines", raw.input_lines));
  s.output_tokens = raw.output_tokens;
  s.repeats = raw.repeats;
  s.warmup = raw.skip_warmup ? "none" : raw.warmup == "max" ? "c1+max" : raw.warmup;
  s.engine_only = raw.engine_only;
  s.input_tokens = raw.input_tokens;
  s.requests_per_level = raw.requests_per_level;
  s.steady_trim = raw.steady_trim;
  if (raw.new_connections) s.connections = "new";
  DSF_TRY(s.prompts, PromptSource::load(raw.prompt_style));
  if (s.input_tokens > 0 && s.prompts.style() != "words") return usage("--input-tokens", "only generated words can be fitted", "leave --prompt-style out");
  if (raw.endpoint == "completions" && raw.prompt_style.starts_with("dataset:")) return usage("--endpoint", "conversations need the chat endpoint", "leave --endpoint out");
  s.temperature = raw.temperature;
  s.ignore_eos = raw.ignore_eos;
  s.endpoint_kind = raw.endpoint;
  if (raw.top_p >= 0) s.top_p = raw.top_p;
  if (raw.sample_seed >= 0) s.sample_seed = raw.sample_seed;
  DSF_TRY(s.levels, parse_levels(raw.levels));
  s.thinkings = split(raw.matrix && raw.thinking == "off" ? "off,75" : raw.thinking);
  for (const auto& t : s.thinkings) {
    if (!known_thinking(t)) return usage("--thinking", "'" + t + "' is no thinking mode", "use off, on, low, medium, high, max or 1 to 100");
    if (std::count(s.thinkings.begin(), s.thinkings.end(), t) > 1) return usage("--thinking", "'" + t + "' is given twice", "give each mode once");
    if (raw.endpoint == "completions" && t != "off") return usage("--thinking", "the completions endpoint has no thinking mode", "use --thinking off");
  }
  s.phases = raw.matrix ? std::vector<std::string>{"decode", "prefill"} : std::vector<std::string>{raw.output_tokens == 1 ? "prefill" : "decode"};
  if (raw.matrix && raw.output_tokens == 1) return usage("--output-tokens", "the matrix has its own prefill passes", "give the cap of the decode passes");
  s.order = raw.order;
  const bool shuffle = raw.order.starts_with("shuffle:") && parse_u64(raw.order.substr(8));
  if (raw.order != "asc" && raw.order != "desc" && !shuffle) return usage("--order", "'" + raw.order + "' is no order", "use asc, desc or shuffle:SEED");
  DSF_TRY(s.extra_body, json::parse(raw.extra_body, "--extra-body"));
  if (!s.extra_body.is_object()) return usage("--extra-body", "a JSON object expected", "write it like '{\"top_k\": 20}'");
  return {};
}

Result<void> fill_target(const RawOptions& raw, Target& t) {
  if (raw.model.empty()) return usage("--model", "the served model id is needed", "ask the server: GET /v1/models");
  if (raw.label.empty()) return usage("--label", "a label for the tables is needed", "name the engine, for example --label dsf");
  t.base_url = raw.base_url;
  while (t.base_url.ends_with('/')) t.base_url.pop_back();
  DSF_TRY(const http::Url url, http::parse_url(t.base_url));
  if (url.path == "/") t.base_url += "/v1";  // a bare server: the API's usual place
  if (!url.query.empty()) return usage("--base-url", "an URL with a query is no base", "give it like http://host:8000/v1");
  t.model = raw.model;
  t.label = raw.label;
  t.thinking_style = raw.thinking_style;
  t.max_tokens_field = raw.max_tokens_field;
  t.metrics_url = raw.metrics_url;
  t.flush_path = raw.flush;
  t.proxy = raw.proxy;
  t.insecure = raw.insecure;
  t.timeouts = {raw.connect_timeout_us, raw.first_token_timeout_us, raw.idle_timeout_us, raw.request_timeout_us};
  if (const char* key = std::getenv(raw.api_key_env.c_str())) t.api_key = key;
  if (t.api_key.find_first_of("\r\n") != std::string::npos) return usage("--api-key-env", "the key holds a line break", "store it without one");
  t.cache_salt = raw.cache_salt;
  if (raw.cache_salt == "auto") t.cache_salt = std::to_string(std::random_device()()) + std::to_string(std::random_device()());
  return {};
}

Result<void> fill_gates(const RawOptions& raw, Gates& g) {
  g.cache_tolerance = raw.cache_tolerance;
  g.allow_cached = raw.allow_cached;
  g.allow_failures = raw.allow_failures;
  for (const auto& [from, to] : {std::pair(&raw.fail_under, &g.fail_under), std::pair(&raw.fail_over, &g.fail_over)}) {
    for (const auto& list : *from) {
      for (const auto& expr : split(list)) {
        DSF_OK(parse_threshold(expr));
        to->push_back(expr);
      }
    }
  }
  if (raw.slo.empty()) return {};
  for (const auto& part : split(raw.slo)) {
    const size_t equals = part.find('=');
    const auto value = equals == std::string::npos ? std::nullopt : parse_double(std::string_view(part).substr(equals + 1));
    const std::string name = part.substr(0, equals);
    std::optional<double>* const bound = name == "ttft_ms" ? &g.slo_ttft_ms : name == "tpot_ms" ? &g.slo_tpot_ms : name == "e2e_ms" ? &g.slo_e2e_ms : nullptr;
    if (!value || bound == nullptr) return usage("--slo", "'" + part + "' is no bound", "write it like ttft_ms=1500,tpot_ms=40,e2e_ms=20000");
    *bound = *value;
  }
  return {};
}

// "weights.repo=NAME" becomes a member of a member.
void set_path(json::Value& object, const std::string& path, json::Value value) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    object.set(path, std::move(value));
    return;
  }
  const std::string head = path.substr(0, dot);
  if (object.find(head) == nullptr || !object.find(head)->is_object()) object.set(head, json::Value::object());
  set_path(*object.find(head), path.substr(dot + 1), std::move(value));
}

Result<void> fill_meta(const RawOptions& raw, json::Value& meta) {
  if (!raw.meta_file.empty()) {
    DSF_TRY(const std::string text, io::read_text(raw.meta_file, 1 << 20));
    DSF_TRY(meta, json::parse(text, raw.meta_file));
    if (!meta.is_object()) return usage("--meta-file", "a JSON object expected", "see docs/method.md");
  }
  for (const auto& item : raw.meta) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) return usage("--meta", "'" + item + "' is not KEY=VALUE", "write it like weights.revision=abc");
    set_path(meta, item.substr(0, equals), item.substr(equals + 1));
  }
  return {};
}

Result<void> fill_rate(const RawOptions& raw, Plan& plan) {
  plan.turns = raw.turns;
  if (raw.rate.empty() && raw.trace.empty() && raw.turns == 0) return {};
  if ((raw.rate.empty() ? 0 : 1) + (raw.trace.empty() ? 0 : 1) + (raw.turns > 0 ? 1 : 0) > 1) {
    return usage("--rate", "a trace has its own times, a session its own order", "give one of --rate, --trace and --turns");
  }
  if (plan.settings.thinkings.size() > 1 || raw.matrix) return usage("--thinking", "open loop and sessions run one mode", "give one mode and no --matrix");
  if (raw.turns > 0) return {};
  plan.rate.max_connections = raw.max_connections;
  plan.rate.requests = raw.requests;
  plan.rate.ramp_to = raw.ramp_to;
  plan.rate.burstiness = raw.burstiness;
  plan.rate.trace_path = raw.trace;
  plan.rate.kind = raw.trace.empty() ? raw.arrivals : "trace";
  if (!raw.trace.empty()) return load_trace(plan.rate);
  const auto rate = parse_double(raw.rate);
  if (!rate || !(*rate > 0) || *rate > 1e6) return usage("--rate", "'" + raw.rate + "' is no rate", "give requests per second, or 1,2,4 for a sweep");
  plan.rate.rate = *rate;
  schedule_rate(plan.rate, plan.settings.seed);
  return {};
}

}  // namespace

Result<std::vector<int64_t>> parse_levels(const std::string& text) {
  std::vector<int64_t> out;
  for (const auto& part : split(text)) {
    const size_t dash = part.find('-');
    const auto low = parse_i64(part.substr(0, dash));
    const auto high = dash == std::string::npos ? low : parse_i64(part.substr(dash + 1));
    if (!low || !high || *low < 1 || *high < *low || *high > 4096) return usage("--levels", "'" + part + "' is no level", "write it like 1-8 or 1,2,4,8");
    for (int64_t c = *low; c <= *high; ++c) out.push_back(c);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void add_target_flags(cli::Command& c, RawOptions& raw) {
  c.group("Server")
      .option("--base-url,--url", raw.base_url, "base URL of the API, or of the server (then /v1)", "URL")
      .option("--model", raw.model, "served model id", "ID")
      .option("--thinking", raw.thinking, "off, on, low, medium, high, max or 1..100; a comma list runs several", "MODE");
  c.rare_group("How to reach it")
      .choice("--endpoint", raw.endpoint, {"chat", "completions"}, "which API to call")
      .choice("--thinking-style", raw.thinking_style, {"auto", "both", "kwargs", "top", "none"}, "how the mode travels")
      .choice("--max-tokens-field", raw.max_tokens_field, {"max_tokens", "max_completion_tokens"}, "name of the cap")
      .option("--api-key-env", raw.api_key_env, "variable that holds the key", "NAME")
      .option("--metrics-url", raw.metrics_url, "Prometheus page read around every level: auto, none or an URL", "URL")
      .option("--proxy", raw.proxy, "proxy; none by default, whatever the environment says", "URL")
      .flag("--insecure", raw.insecure, "accept any certificate")
      .duration("--connect-timeout", raw.connect_timeout_us, "time to connect")
      .duration("--first-token-timeout", raw.first_token_timeout_us, "time to the first token")
      .duration("--idle-timeout", raw.idle_timeout_us, "time without a byte")
      .duration("--request-timeout", raw.request_timeout_us, "time for a whole request");
}

void add_run_flags(cli::Command& c, RawOptions& raw) {
  add_target_flags(c, raw);
  c.group("What to measure")
      .option("--label", raw.label, "name of the engine in tables", "NAME")
      .option("--input-lines", raw.input_lines, "body lines of a prompt; a comma list is a sweep", "N")
      .option("--output-tokens", raw.output_tokens, "cap; 1 selects the prefill phase", 1, 1'000'000)
      .option("--levels", raw.levels, "numbers of requests at once", "LIST")
      .option("--repeats", raw.repeats, "whole passes; each has its own prompts", 1, 1000)
      .option("--seed", raw.seed, "seed of the prompts", 0)
      .flag("--matrix", raw.matrix, "decode and prefill passes of off and 75: 144 requests a repeat")
      .option("--out", raw.out, "result directory; must be new or empty", "DIR")
      .flag("--resume", raw.resume, "go on with the interrupted run in --out");
  c.rare_group("Prompts, warm-up and loops")
      .option("--input-tokens", raw.input_tokens, "fit every prompt to so many tokens with the server's /tokenize", 0, 10'000'000)
      .option("--prompt-style", raw.prompt_style, "words, file:PATH or dataset:PATH (JSON lines)", "STYLE")
      .option("--order", raw.order, "asc, desc or shuffle:SEED", "ORDER")
      .choice("--warmup", raw.warmup, {"max", "all", "steady"}, "C1 and the largest level, every level, or C1 until its rate settles")
      .flag("--skip-warmup", raw.skip_warmup, "no warm-up requests")
      .option("--requests-per-level", raw.requests_per_level, "closed loop: so many requests a level, C of them at any time", 0, 1'000'000)
      .option("--steady-trim", raw.steady_trim, "share cut off both ends of the steady window", 0, 0.4)
      .flag("--new-connections", raw.new_connections, "open a connection for every request, inside its time");
  c.rare_group("Requests")
      .option("--temperature", raw.temperature, "sampling temperature", 0, 10)
      .option("--top-p", raw.top_p, "nucleus; not sent by default", 0, 1)
      .option("--sample-seed", raw.sample_seed, "seed for the server; not sent by default", 0)
      .flag("--ignore-eos", raw.ignore_eos, "send ignore_eos and min_tokens")
      .option("--extra-body", raw.extra_body, "merged into every request", "JSON")
      .list("--engine-only", raw.engine_only, "member of --extra-body that a comparison ignores", "NAME")
      .option("--cache-salt", raw.cache_salt, "cache_salt of every request; auto makes a fresh one", "TEXT");
  c.rare_group("Procedure and validity")
      .flag("--no-probe", raw.no_probe, "send standard members only, ask nothing first")
      .choice("--latency-probe", raw.latency_probe, {"none", "api", "generation"}, "measure the floor of a round trip first")
      .flag("--coherence", raw.coherence, "ask a question with a known answer first; a wrong one fails the run")
      .option("--cooldown-ms", raw.cooldown_ms, "idle time between levels", 0, 3'600'000)
      .option("--retry-level", raw.retry_level, "run a level with failures again, at most so often; every attempt is kept", 0, 100)
      .option("--flush", raw.flush, "path POSTed before every pass to empty the server's cache", "PATH")
      .option("--cache-tolerance", raw.cache_tolerance, "cached prompt tokens that are still clean", 0)
      .flag("--allow-cached", raw.allow_cached, "do not fail on prefix-cache reuse")
      .option("--allow-failures", raw.allow_failures, "failed requests that do not fail the run", 0)
      .list("--fail-under", raw.fail_under, "least value, as decode.off.c1=50", "EXPR")
      .list("--fail-over", raw.fail_over, "greatest value, as ttft.off.c1.median_ms=1500", "EXPR")
      .option("--slo", raw.slo, "goodput bounds, as ttft_ms=1500,tpot_ms=40", "LIST")
      .list("--meta", raw.meta, "fact for the record, as weights.revision=abc", "KEY=VALUE")
      .option("--meta-file", raw.meta_file, "facts for the record", "JSON")
      .flag("--save-text", raw.save_text, "keep replies, not only their hashes");
  c.rare_group("Open loop and sessions")
      .option("--rate", raw.rate, "requests per second instead of the matrix; a comma list is a sweep", "X")
      .choice("--arrivals", raw.arrivals, {"constant", "poisson", "gamma"}, "spacing of the requests")
      .option("--burstiness", raw.burstiness, "shape of gamma gaps; below 1 is burstier than poisson", 0.01, 1000)
      .option("--ramp-to", raw.ramp_to, "the rate moves linearly to this over the requests", 0, 1e6)
      .option("--requests", raw.requests, "how many requests", 1, 10'000'000)
      .option("--trace", raw.trace, "replay times: JSON lines with at_ms, or raw.jsonl.zst of a run", "FILE")
      .option("--max-connections", raw.max_connections, "connections opened ahead", 1, 4096)
      .option("--turns", raw.turns, "conversations of so many turns at the largest level: what a prefix cache is worth", 0, 1000);
}

Result<Plan> make_plan(const RawOptions& raw, cli::Args args) {
  Plan plan;
  DSF_OK(fill_settings(raw, plan.settings));
  DSF_OK(fill_target(raw, plan.target));
  DSF_OK(fill_gates(raw, plan.gates));
  DSF_OK(fill_meta(raw, plan.meta));
  DSF_OK(fill_rate(raw, plan));
  plan.out = raw.out;
  plan.cooldown_ms = raw.cooldown_ms;
  plan.retry_level = raw.retry_level;
  plan.probe = {!raw.no_probe, raw.latency_probe, raw.coherence};
  plan.resume = raw.resume;
  plan.save_text = raw.save_text;
  plan.json_output = raw.common.json;
  plan.quiet = raw.common.quiet;
  for (int i = 0; i < args.argc; ++i) plan.argv.emplace_back(args.argv[i]);  // secrets never travel in argv
  return plan;
}

Result<std::vector<Plan>> make_plans(const RawOptions& raw, cli::Args args) {
  const std::vector<std::string> lines = split(raw.input_lines), rates = split(raw.rate);
  if (lines.size() > 1 && rates.size() > 1) return usage("--rate", "two sweeps at once", "sweep --input-lines or --rate");
  std::vector<Plan> out;
  const bool sweep = lines.size() > 1 || rates.size() > 1;
  for (const auto& n : lines) {
    for (const auto& rate : rates) {
      RawOptions one = raw;
      one.input_lines = n;
      one.rate = rate;
      if (sweep) one.out = (std::filesystem::path(raw.out) / (lines.size() > 1 ? "lines-" + n : "rate-" + rate)).string();
      DSF_TRY(Plan plan, make_plan(one, args));
      out.push_back(std::move(plan));
    }
  }
  return out;
}

}  // namespace dsf::bench
