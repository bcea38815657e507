// The refusals: every row of bench.md 3.5 is one function.
#include <algorithm>
#include <cstdlib>

#include "tools/bench/compare.h"

namespace dsf::bench {
namespace {

using json::Value;

class PairCheck {
 public:
  PairCheck(const Summary& a, const Summary& b, const CompareOptions& options, Comparison& out) : a_(a), b_(b), options_(options), out_(out) {}

  void run() {
    weights();
    hardware();
    bool any = false;
    for (const auto& pass : a_.passes) {
      const Pass* other = b_.pass(pass.phase, pass.thinking);
      if (other == nullptr) {
        warn("only one of the runs has the pass " + pass.phase + "/" + pass.thinking);
        continue;
      }
      any = true;
      place_ = pass.phase + "/" + pass.thinking + ": ";
      settings(pass, *other);
      prompts(pass, *other);
      counts(pass, *other);
      validity(a_, pass);
      validity(b_, *other);
      notes(pass, *other);
    }
    place_.clear();
    if (!any) refuse("the runs have no pass in common");
    for (const Summary* s : {&a_, &b_}) {
      if (s->state != "complete") refuse("'" + s->label + "' is " + s->state + ", not complete");
    }
  }

 private:
  void refuse(const std::string& why) { add(out_.refusals, place_ + why); }
  void warn(const std::string& why) { add(out_.warnings, place_ + why); }
  static void add(std::vector<std::string>& list, std::string line) {
    if (std::find(list.begin(), list.end(), line) == list.end()) list.push_back(std::move(line));
  }

  static std::string member(const Value& run, std::initializer_list<const char*> path) {
    const Value* v = &run;
    for (const char* key : path) {
      v = v->find(key);
      if (v == nullptr) return {};
    }
    return v->is_string() ? v->as_string() : std::string();
  }

  // What the servers say about their weights; else what the user said; else refuse.
  void weights() {
    if (options_.same_weights) return;
    const auto a = weight_digests(a_.run), b = weight_digests(b_.run);
    if (!a.empty() && !b.empty()) {
      for (const auto& [name, value] : a) {
        const auto it = b.find(name);
        if (it == b.end()) refuse("weights: only '" + a_.label + "' reports " + name);
        else if (it->second != value) refuse("weights: " + name + " is " + value + " for '" + a_.label + "', " + it->second + " for '" + b_.label + "'");
      }
      for (const auto& [name, value] : b) {
        if (!a.contains(name)) refuse("weights: only '" + b_.label + "' reports " + name);
      }
      return;
    }
    for (const char* key : {"repo", "revision"}) {
      const std::string x = member(a_.run, {"meta", "weights", key}), y = member(b_.run, {"meta", "weights", key});
      if (x.empty() || y.empty()) refuse(std::string("weights: ") + key + " unknown for '" + (x.empty() ? a_.label : b_.label) + "' (give --meta weights." + key + "=... or --same-weights)");
      else if (x != y) refuse(std::string("weights: ") + key + " is " + x + " for '" + a_.label + "', " + y + " for '" + b_.label + "'");
    }
  }

  void hardware() {
    const std::string x = member(a_.run, {"meta", "gpu"}), y = member(b_.run, {"meta", "gpu"});
    if (!options_.cross_hardware && !x.empty() && !y.empty() && x != y) refuse("hardware: gpu is " + x + " and " + y + " (--cross-hardware compares anyway)");
    for (const char* key : {"hostname", "cpu", "kernel"}) {
      if (member(a_.run, {"client", key}) != member(b_.run, {"client", key})) warn(std::string("different client ") + key);
    }
    dates();
    if (member(a_.run, {"server", "url"}) != member(b_.run, {"server", "url"})) warn("different network path: " + member(a_.run, {"server", "url"}) + " and " + member(b_.run, {"server", "url"}));
    for (const char* key : {"driver", "clocks"}) {
      if (member(a_.run, {"meta", key}) != member(b_.run, {"meta", key})) warn(std::string("different GPU ") + key);
    }
    const std::string tool_a = member(a_.run, {"created_by"}), tool_b = member(b_.run, {"created_by"});
    if (tool_a != tool_b) warn("measured by " + tool_a + " and " + tool_b);
  }

  void dates() {
    const auto started_ns = [](const Value& run) -> std::optional<int64_t> {
      const Value* started = run.find("started");
      const Value* ns = started == nullptr ? nullptr : started->find("realtime_ns");
      return ns == nullptr ? std::nullopt : ns->to_i64();
    };
    const auto x = started_ns(a_.run), y = started_ns(b_.run);
    constexpr int64_t kDayNs = 86'400'000'000'000;
    if (x && y && std::abs(*x - *y) > 7 * kDayNs) warn("measured " + std::to_string(std::abs(*x - *y) / kDayNs) + " days apart");
  }

  void settings(const Pass& a, const Pass& b) {
    if (a.settings_sha256 == b.settings_sha256) return;
    for (const auto& [key, value] : a.settings.as_object()) {
      const Value* other = b.settings.find(key);
      if (other == nullptr) refuse("setting " + key + " is missing in '" + b_.label + "'");
      else if (json::dump(*other) != json::dump(value)) refuse("setting " + key + " is " + json::dump(value) + " and " + json::dump(*other));
    }
    for (const auto& [key, value] : b.settings.as_object()) {
      if (a.settings.find(key) == nullptr) refuse("setting " + key + " is missing in '" + a_.label + "'");
    }
  }

  void prompts(const Pass& a, const Pass& b) {
    for (size_t r = 0; r < std::min(a.pass_sha256.size(), b.pass_sha256.size()); ++r) {
      if (a.pass_sha256[r] == b.pass_sha256[r]) continue;
      refuse("prompt hashes of repeat " + std::to_string(r) + " differ (" + a.pass_sha256[r].substr(0, 16) + ", " + b.pass_sha256[r].substr(0, 16) + ")" + first_prompt(a, b));
    }
  }

  static std::string first_prompt(const Pass& a, const Pass& b) {
    for (const auto& cell : a.cells) {
      const Cell* other = b.cell(cell.c);
      if (other == nullptr || other->requests.size() != cell.requests.size()) return ", first in C" + std::to_string(cell.c);
      for (size_t i = 0; i < cell.requests.size(); ++i) {
        if (cell.requests[i]->prompt_sha256 != other->requests[i]->prompt_sha256) return ", first in " + cell.requests[i]->id;
      }
    }
    return {};
  }

  void counts(const Pass& a, const Pass& b) {
    for (const auto& cell : a.cells) {
      const Cell* other = b.cell(cell.c);
      if (other == nullptr || other->requests.size() != cell.requests.size()) continue;  // the settings or prompts already differ
      for (size_t i = 0; i < cell.requests.size(); ++i) {
        const Request &x = *cell.requests[i], &y = *other->requests[i];
        if (!x.ok() || !y.ok()) continue;
        if (different("prompt", x.usage.prompt, y.usage.prompt, x.id) || different("completion", x.n_tokens, y.n_tokens, x.id)) return;
      }
    }
  }

  bool different(const char* what, const std::optional<int64_t>& x, const std::optional<int64_t>& y, const std::string& id) {
    if (x && y && *x == *y) return false;
    const auto text = [](const std::optional<int64_t>& v) { return v ? std::to_string(*v) : std::string("unknown"); };
    refuse(std::string(what) + " tokens differ, first in " + id + ": " + text(x) + " and " + text(y));
    return true;
  }

  void validity(const Summary& s, const Pass& pass) {
    const std::string who = "'" + s.label + "' ";
    if (pass.thinking_check == "mismatch") refuse(who + "did not run in thinking mode " + pass.thinking);
    if (pass.token_check == "count_mismatch") refuse(who + "reports prompt tokens that its own tokenizer does not find");
    for (const auto& cell : pass.cells) {
      if (cell.eligible) continue;
      std::string flags;
      for (const auto& f : cell.flags) flags += (flags.empty() ? "" : ", ") + f;
      refuse(who + "C" + std::to_string(cell.c) + " is not usable (" + flags + ")");
    }
    if (pass.phase == "decode") {
      for (const auto& cell : pass.cells) {
        if (std::find(cell.flags.begin(), cell.flags.end(), "short_output") == cell.flags.end()) continue;
        refuse(who + "stopped before the cap in C" + std::to_string(cell.c) + " (use --ignore-eos for both)");
        return;
      }
    }
  }

  void notes(const Pass& a, const Pass& b) {
    if (a.cache_evidence == "none" || b.cache_evidence == "none") warn("prefix-cache reuse is not verifiable");
    if (a.weight_source != b.weight_source) warn("event weights come from " + a.weight_source + " and " + b.weight_source);
    if (a.thinking_check == "unverified" || b.thinking_check == "unverified") warn("the thinking mode is not verified for every run");
  }

  const Summary& a_;
  const Summary& b_;
  const CompareOptions& options_;
  Comparison& out_;
  std::string place_;
};

}  // namespace

void check_pair(const Summary& a, const Summary& b, const CompareOptions& options, Comparison& out) { PairCheck(a, b, options, out).run(); }

}  // namespace dsf::bench
