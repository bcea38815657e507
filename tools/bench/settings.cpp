#include "tools/bench/settings.h"

#include <algorithm>
#include <random>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"

namespace dsf::bench {
namespace {

// Place of a request in the whole run, which a data set turns into a line: passes, then repeats, then levels, then slots.
int64_t ordinal(const Settings& s, const std::string& phase, const std::string& thinking, int64_t c, int64_t repeat, int64_t slot) {
  int64_t in_pass = 0, before = 0;
  for (const int64_t level : s.levels) {
    in_pass += s.requests_at(level);
    before += level < c ? s.requests_at(level) : 0;
  }
  const auto index = [](const std::vector<std::string>& list, const std::string& name) { return std::find(list.begin(), list.end(), name) - list.begin(); };
  const int64_t pass = index(s.thinkings, thinking) * static_cast<int64_t>(s.phases.size()) + index(s.phases, phase);
  return (pass * s.repeats + repeat) * in_pass + before + slot;
}

Planned plan_request(const Settings& s, const std::string& phase, const std::string& thinking, int64_t c, int64_t repeat, int64_t slot) {
  Planned p;
  const bool warmup = phase == "warmup";  // always generated words: a warm-up must not put a measured text into a cache
  p.key = {s.seed, s.input_lines, phase, thinking, c, repeat, slot, warmup ? std::string() : s.prompts.key_style()};
  p.prompt = warmup ? PromptSource().make(p.key, 0) : s.prompts.make(p.key, ordinal(s, phase, thinking, c, repeat, slot));
  p.sha256 = sha256_of(p.prompt);
  return p;
}

Level plan_level(const Settings& s, const std::string& phase, const std::string& thinking, int64_t c, int64_t repeat) {
  Level level;
  level.c = c;
  for (int64_t slot = 0; slot < s.requests_at(c); ++slot) level.requests.push_back(plan_request(s, phase, thinking, c, repeat, slot));
  return level;
}

// Without the members that one engine alone needs.
json::Value comparable_extra(const Settings& s) {
  json::Object out = s.extra_body.as_object();
  std::erase_if(out, [&](const json::Member& m) { return std::find(s.engine_only.begin(), s.engine_only.end(), m.first) != s.engine_only.end(); });
  return out;
}

// Fisher-Yates on mt19937_64, whose sequence the standard fixes (std::shuffle's is not).
void shuffle(std::vector<int64_t>& v, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[random() % i]);
}

}  // namespace

json::Value sorted(const json::Value& value) {
  if (value.is_array()) {
    json::Array out;
    for (const auto& v : value.as_array()) out.push_back(sorted(v));
    return out;
  }
  if (!value.is_object()) return value;
  json::Object out;
  for (const auto& [key, v] : value.as_object()) out.emplace_back(key, sorted(v));
  std::sort(out.begin(), out.end(), [](const json::Member& a, const json::Member& b) { return a.first < b.first; });
  return out;
}

json::Value settings_json(const Settings& s, const std::string& phase, const std::string& thinking) {
  json::Value out = json::Value::object();
  json::Array levels;
  for (const int64_t c : s.levels) levels.emplace_back(c);
  out.set("prompt_generator", s.prompts.style() == "words" ? kPromptGenerator : std::string_view(s.prompts.style()));
  out.set("seed", s.seed);
  out.set("input_lines", s.input_lines);
  out.set("levels", std::move(levels));
  out.set("phase", phase);
  out.set("thinking", thinking);
  out.set("output_tokens", s.max_tokens(phase));
  out.set("repeats", s.repeats);
  out.set("warmup", s.warmup);
  out.set("order", s.order);
  out.set("temperature", s.temperature);
  out.set("top_p", s.top_p ? json::Value(*s.top_p) : json::Value());
  out.set("sample_seed", s.sample_seed ? json::Value(*s.sample_seed) : json::Value());
  out.set("ignore_eos", s.ignore_eos);
  out.set("extra_body", comparable_extra(s));
  out.set("connections", s.connections);
  out.set("endpoint_kind", s.endpoint_kind);
  if (s.input_tokens > 0) out.set("input_tokens", s.input_tokens);
  if (s.requests_per_level > 0) {
    out.set("requests_per_level", s.requests_per_level);
    out.set("steady_trim", s.steady_trim);
  }
  return out;
}

std::string settings_sha256(const json::Value& settings) { return codec::sha256(json::dump(sorted(settings))).hex(); }

std::vector<Level> plan_pass(const Settings& s, const std::string& phase, const std::string& thinking, int64_t repeat) {
  std::vector<int64_t> order = s.levels;
  if (s.order == "desc") std::reverse(order.begin(), order.end());
  if (s.order.starts_with("shuffle:")) shuffle(order, parse_u64(s.order.substr(8)).value_or(0));
  std::vector<Level> out;
  for (const int64_t c : order) out.push_back(plan_level(s, phase, thinking, c, repeat));
  return out;
}

std::vector<Level> plan_warmup(const Settings& s, const std::string& thinking) {
  Settings warm = s;
  warm.requests_per_level = 0;
  std::vector<int64_t> levels = s.warmup == "all" ? s.levels : std::vector<int64_t>{1, s.levels.back()};
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  std::vector<Level> out;
  for (const int64_t c : levels) out.push_back(plan_level(warm, "warmup", thinking, c, 0));
  return out;
}

Result<void> check_distinct(const Settings& s) {
  std::set<std::string> seen;
  for (const auto& phase : s.phases) {
    for (const auto& thinking : s.thinkings) {
      for (int64_t repeat = 0; repeat < s.repeats; ++repeat) {
        for (const auto& level : plan_pass(s, phase, thinking, repeat)) {
          for (const auto& p : level.requests) {
            if (seen.insert(p.sha256).second) continue;
            const bool few = s.prompts.size() > 0;
            return fail(Code::kUsage, p.key.text(), "two measured requests would send the same prompt",
                        few ? "the data set has too few different lines (" + std::to_string(s.prompts.size()) + ")" : "give each level, phase and mode once", "duplicate_prompt");
          }
        }
      }
    }
  }
  return {};
}

}  // namespace dsf::bench
