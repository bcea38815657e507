#include "tools/bench/settings.h"

#include <algorithm>
#include <random>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"

namespace dsf::bench {
namespace {

Planned plan_request(const Settings& s, const std::string& phase, const std::string& thinking, int64_t c, int64_t repeat, int64_t slot) {
  Planned p;
  p.key = {s.seed, s.input_lines, phase, thinking, c, repeat, slot};
  p.text = prompt_text(p.key);
  p.sha256 = codec::sha256(p.text).hex();
  return p;
}

Level plan_level(const Settings& s, const std::string& phase, const std::string& thinking, int64_t c, int64_t repeat) {
  Level level;
  level.c = c;
  for (int64_t slot = 0; slot < c; ++slot) level.requests.push_back(plan_request(s, phase, thinking, c, repeat, slot));
  return level;
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
  out.set("prompt_generator", kPromptGenerator);
  out.set("seed", s.seed);
  out.set("input_lines", s.input_lines);
  out.set("levels", std::move(levels));
  out.set("phase", phase);
  out.set("thinking", thinking);
  out.set("output_tokens", s.max_tokens(phase));
  out.set("repeats", s.repeats);
  out.set("warmup", s.warmup ? "c1+max" : "none");
  out.set("order", s.order);
  out.set("temperature", s.temperature);
  out.set("top_p", s.top_p ? json::Value(*s.top_p) : json::Value());
  out.set("sample_seed", s.sample_seed ? json::Value(*s.sample_seed) : json::Value());
  out.set("ignore_eos", s.ignore_eos);
  out.set("extra_body", s.extra_body);
  out.set("connections", s.connections);
  out.set("endpoint_kind", s.endpoint_kind);
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
  std::vector<Level> out = {plan_level(s, "warmup", thinking, 1, 0)};
  if (s.levels.back() > 1) out.push_back(plan_level(s, "warmup", thinking, s.levels.back(), 0));
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
            return fail(Code::kUsage, p.key.text(), "two measured requests would send the same prompt", "give each level, phase and mode once",
                        "duplicate_prompt");
          }
        }
      }
    }
  }
  return {};
}

}  // namespace dsf::bench
