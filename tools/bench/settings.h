#pragma once
// What a run is meant to measure, and against what. Settings are everything that two compared runs must share; Target is the rest.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dsf/json/json.h"
#include "tools/bench/network.h"
#include "tools/bench/prompt_source.h"

namespace dsf::bench {

struct Settings {
  uint64_t seed = 1;
  int64_t input_lines = 27;
  std::vector<int64_t> levels;              // ascending
  std::vector<std::string> phases;          // "decode", "prefill"
  std::vector<std::string> thinkings;       // as given: "off", "75"
  int64_t output_tokens = 64;               // of decode passes; a prefill pass asks for one
  int64_t repeats = 1;
  std::string warmup = "c1+max";            // "none", "c1+max", "all" (every level), "steady" (C1 until its rate settles, then the largest)
  std::string order = "asc";                // "asc", "desc", "shuffle:SEED"
  double temperature = 0;
  std::optional<double> top_p;
  std::optional<int64_t> sample_seed;
  bool ignore_eos = false;
  json::Value extra_body = json::Value::object();
  std::vector<std::string> engine_only;     // members of extra_body that a comparison ignores
  std::string connections = "keep-alive";   // or "new": opened inside the timed region
  std::string endpoint_kind = "chat";       // or "completions"
  PromptSource prompts;
  int64_t input_tokens = 0;                 // > 0: prompts are fitted to so many tokens by the server's /tokenize
  int64_t requests_per_level = 0;           // > 0: closed loop, so many requests at constant concurrency C
  double steady_trim = 0.1;                 // closed loop: share cut off both ends of the steady window

  int64_t requests_at(int64_t c) const { return requests_per_level > 0 ? std::max(requests_per_level, c) : c; }
  int64_t max_tokens(const std::string& phase) const { return phase == "prefill" ? 1 : output_tokens; }
};

// The members of settings_sha256 for one pass (bench.md 3.2). What the specification does not list appears only when it was asked for.
json::Value settings_json(const Settings& settings, const std::string& phase, const std::string& thinking);
std::string settings_sha256(const json::Value& settings);
// Members sorted at every depth.
json::Value sorted(const json::Value& value);

// What the server was seen to accept; decides the optional members of a request body.
struct Features {
  std::map<std::string, std::string> thinking_style;  // by thinking setting: "both", "kwargs", "top", "none"
  bool include_usage = true;
  bool continuous_usage = false;
  bool token_ids = false;
  bool tokenize = false;
};

struct Target {
  std::string base_url;         // ".../v1"
  std::string model, label;
  std::string thinking_style = "auto";
  std::string max_tokens_field = "max_tokens";
  std::string api_key;          // never written anywhere
  std::string cache_salt;       // empty: none
  std::string metrics_url;      // empty: no scrape
  std::string flush_path;       // POSTed before every pass; empty: none
  std::string proxy;
  Timeouts timeouts;
  bool insecure = false;
};

// One planned request: key and prompt.
struct Planned {
  PromptKey key;
  Prompt prompt;
  std::string sha256;
};

struct Level {
  int64_t c = 1;
  std::vector<Planned> requests;
};

// Levels of one pass in the order in which they run.
std::vector<Level> plan_pass(const Settings& settings, const std::string& phase, const std::string& thinking, int64_t repeat);
std::vector<Level> plan_warmup(const Settings& settings, const std::string& thinking);
// kUsage "duplicate_prompt" when two measured requests of the whole run would send the same text.
Result<void> check_distinct(const Settings& settings);

}  // namespace dsf::bench
