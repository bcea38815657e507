#include "tools/bench/pass_checks.h"

#include <algorithm>

#include "tools/bench/prompts.h"

namespace dsf::bench {
namespace {

std::vector<const Request*> requests_of(const RunData& data, const Pass& pass) {
  std::vector<const Request*> out;
  for (const auto& r : data.requests) {
    if (r.phase == pass.phase && r.thinking == pass.thinking) out.push_back(&r);
  }
  return out;
}

std::string hash_of_repeat(std::vector<const Request*> requests, int64_t repeat) {
  std::erase_if(requests, [&](const Request* r) { return r->repeat != repeat; });
  std::sort(requests.begin(), requests.end(), [](const Request* a, const Request* b) { return std::pair(a->c, a->slot) < std::pair(b->c, b->slot); });
  std::vector<std::string> hashes;
  for (const Request* r : requests) hashes.push_back(r->prompt_sha256);
  return pass_hash(hashes);
}

bool thought(const Request& r) {
  return r.output.reasoning_events > 0 || r.output.starts_with_think || r.usage.reasoning.value_or(0) > 0;
}

// The probe asked the same text in this mode and in the opposite one: different prompts were rendered.
bool probe_saw_difference(const json::Value& run, const std::string& thinking) {
  const json::Value* probe = run.find("probe");
  const json::Value* differs = probe == nullptr ? nullptr : probe->find("prompt_differs");
  const json::Value* v = differs == nullptr ? nullptr : differs->find(thinking);
  return v != nullptr && v->is_bool() && v->as_bool();
}

std::string check_thinking(const RunData& data, const Pass& pass, const std::vector<const Request*>& ok) {
  const bool any = std::any_of(ok.begin(), ok.end(), [](const Request* r) { return thought(*r); });
  if (pass.thinking == "off") {
    if (any) return "mismatch";
    return ok.empty() ? "unverified" : "verified";
  }
  return any || probe_saw_difference(data.run, pass.thinking) ? "verified" : "unverified";
}

std::string check_tokens(const RunData& data, const Pass& pass) {
  std::string out;
  for (const auto& check : data.token_checks) {
    if (check.phase != pass.phase || check.thinking != pass.thinking) continue;
    if (out.empty() || check.result == "count_mismatch") out = check.result;
    if (out == "verified" && check.result == "verified_offset") out = check.result;
  }
  return out.empty() ? "unverified" : out;
}

}  // namespace

void check_pass(const RunData& data, Pass& pass, int64_t repeats) {
  std::vector<const Request*> requests = requests_of(data, pass);
  for (int64_t r = 0; r < repeats; ++r) pass.pass_sha256.push_back(hash_of_repeat(requests, r));
  std::erase_if(requests, [](const Request* r) { return !r->ok(); });
  const auto all = [&](auto&& test) { return !requests.empty() && std::all_of(requests.begin(), requests.end(), test); };
  for (const Request* r : requests) {
    if (pass.weight_source.empty()) pass.weight_source = r->weight_source;
    if (pass.weight_source != r->weight_source) pass.weight_source = "mixed";
  }
  pass.decode_formula = all([](const Request* r) { return r->weight_source == "token_ids" || r->weight_source == "usage_delta"; }) ? "d" : "d_ref";
  const bool scraped = std::any_of(data.levels.begin(), data.levels.end(), [&](const LevelRecord& l) {
    return l.phase == pass.phase && l.thinking == pass.thinking && difference(l.before, l.after).cache_hit_fraction.has_value();
  });
  pass.cache_evidence = all([](const Request* r) { return r->usage.cached.has_value(); }) ? "usage" : scraped ? "metrics" : "none";
  pass.token_check = check_tokens(data, pass);
  pass.thinking_check = check_thinking(data, pass, requests);
}

}  // namespace dsf::bench
