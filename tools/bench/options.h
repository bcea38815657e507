#pragma once
// The command line in two steps: text to raw options (cli), raw options to a validated Plan (here).
#include <string>
#include <vector>

#include "dsf/cli/app.h"
#include "tools/bench/plan.h"

namespace dsf::bench {

struct RawOptions {
  std::string base_url = "http://127.0.0.1:8000/v1", model, label, thinking = "off", levels = "1-8", order = "asc", thinking_style = "auto";
  std::string max_tokens_field = "max_tokens", extra_body = "{}", api_key_env = "OPENAI_API_KEY", metrics_url = "auto", flush, cache_salt, proxy;
  std::string out, slo, meta_file, endpoint = "chat", trace, arrivals = "constant", input_lines = "27", prompt_style = "words", warmup = "max", latency_probe = "none", rate;
  std::vector<std::string> meta, fail_under, fail_over, engine_only;
  int64_t output_tokens = 64, repeats = 1, seed = 1, sample_seed = -1, cooldown_ms = 500, cache_tolerance = 64, allow_failures = 0, retry_level = 0;
  int64_t connect_timeout_us = 10'000'000, first_token_timeout_us = 600'000'000, idle_timeout_us = 120'000'000, request_timeout_us = 1'800'000'000;
  int64_t requests = 100, max_connections = 256, input_tokens = 0, requests_per_level = 0, turns = 0;
  double temperature = 0, top_p = -1, ramp_to = 0, burstiness = 1, steady_trim = 0.1;
  bool matrix = false, skip_warmup = false, ignore_eos = false, allow_cached = false, no_probe = false, save_text = false, insecure = false;
  bool resume = false, new_connections = false, coherence = false;
  cli::CommonFlags common;
};

// Adds the flags that say which server is asked and how; those of a whole run.
void add_target_flags(cli::Command& command, RawOptions& raw);
void add_run_flags(cli::Command& command, RawOptions& raw);
// One plan for each value of a sweep (--input-lines 27,270 or --rate 1,2), each with a folder of its own below --out. Errors: kUsage.
Result<std::vector<Plan>> make_plans(const RawOptions& raw, cli::Args args);
// The only plan of raw options without a sweep. Errors: kUsage.
Result<Plan> make_plan(const RawOptions& raw, cli::Args args);
// "1-8", "1,2,4,8" to ascending levels. Errors: kUsage.
Result<std::vector<int64_t>> parse_levels(const std::string& text);

}  // namespace dsf::bench
