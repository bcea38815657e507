#include "tools/bench/table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace dsf::bench {
namespace {

constexpr int64_t kNotableDriftNs = 50'000'000;

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& p : parts) out += (out.empty() ? "" : ", ") + p;
  return out;
}

std::string range(const std::vector<double>& v) {
  return format_number(min_of(v), 1) + " / " + format_number(median(v), 1) + " / " + format_number(max_of(v), 1);
}

std::string cell_row(const Pass& pass, const Cell& cell) {
  std::vector<double> ttft;
  for (const auto& m : cell.runs) ttft.insert(ttft.end(), m.ttft_ms.begin(), m.ttft_ms.end());
  const LevelMetrics& m = cell.runs.front();
  std::string out = "| " + std::to_string(cell.c) + " | ";
  if (pass.phase == "decode") {
    out += marked(cell, cell.decode, 1) + (cell.decode_form.empty() ? "" : " (" + cell.decode_form + ")") + " | ";
    out += format_number(m.stream_min, 1) + " / " + format_number(m.stream_median, 1) + " / " + format_number(m.stream_max, 1) + " | ";
    out += format_number(m.span, 1) + " | " + format_number(m.all, 1) + " | " + format_number(m.sum, 1) + " | ";
  }
  const bool some_cached = std::any_of(cell.requests.begin(), cell.requests.end(), [](const Request* r) { return r->usage.cached.value_or(0) > 0; });
  out += range(ttft) + " | " + marked(cell, cell.prefill, 1) + (some_cached ? ", uncached " + format_number(m.prefill_uncached, 1) : "") + " | ";
  if (pass.phase == "prefill") out += format_number(m.prefill_user, 1) + " | " + format_number(cell.prefill_less_floor, 1) + " | ";
  else out += format_number(m.tokens_per_event, 2) + " / " + format_number(cell.tokens_per_round, 2) + " | ";
  return out + std::to_string(cell.ok) + "/" + std::to_string(cell.planned) + (cell.attempts > 1 ? ", attempt " + std::to_string(cell.attempts) : "") + " | " + join(cell.flags) + " |\n";
}

std::string pass_table(const Pass& pass) {
  std::string out = "## " + pass.phase + ", thinking " + pass.thinking + "\n\n";
  if (pass.phase == "decode") {
    out += "| C | Aggregate decode tok/s (form) | Per stream min / median / max | Span | Span with first | Sum of streams | TTFT ms min / median / max | Prefill (input tok/s) | Tokens per event / round | Requests ok | Flags |\n";
    out += "|---|---|---|---|---|---|---|---|---|---|---|\n";
  } else {
    out += "| C | TTFT ms min / median / max | Prefill (input tok/s) | Per user | Less latency floor | Requests ok | Flags |\n|---|---|---|---|---|---|---|\n";
  }
  for (const auto& cell : pass.cells) out += cell_row(pass, cell);
  if (pass.phase == "prefill") {
    std::vector<double> values;
    for (const auto& cell : pass.cells) {
      if (cell.eligible && cell.prefill) values.push_back(*cell.prefill);
    }
    const Cell* c1 = pass.cell(1);
    out += "\nBest of several levels is biased upward: C1 " + format_number(c1 == nullptr ? std::nullopt : c1->prefill, 1) + ", median of the levels " + format_number(median(values), 1) + ".\n";
  }
  out += "\nTTFT of all levels, ms: p50 " + format_number(median(pass.ttft_ms), 1) + ", p90 " + format_number(quantile(pass.ttft_ms, 0.9), 1) + ", p95 " +
         format_number(quantile(pass.ttft_ms, 0.95), 1) + ".\n";
  out += "\nPrompts " + (pass.pass_sha256.empty() ? std::string("-") : pass.pass_sha256.front().substr(0, 16)) + "..., settings " + pass.settings_sha256.substr(0, 16) +
         "..., event weights " + (pass.weight_source.empty() ? "-" : pass.weight_source) + ", cache evidence " + pass.cache_evidence + ", prompt tokens " +
         pass.token_check + ", thinking mode " + pass.thinking_check + ".\n\n";
  return out;
}

std::string limits(const Summary& s) {
  int64_t cap = 0, repeats = 1;
  for (const auto& pass : s.passes) {
    if (pass.phase == "decode") cap = pass.settings.find("output_tokens")->to_i64().value_or(0);
    repeats = static_cast<int64_t>(pass.pass_sha256.size());
  }
  std::string out = "## What these numbers are not\n\nOne endpoint, short replies";
  if (cap > 0) out += " (cap " + std::to_string(cap) + " tokens)";
  out += ", not a quality test; " + std::to_string(repeats) + (repeats == 1 ? " repeat" : " repeats") + ". Decode includes streaming and delivery to the client. Prefill includes "
         "scheduling, tokenisation, HTTP and the first token. The best prefill is the best of several levels and so biased upward; C1 and the median stand beside it.";
  if (repeats == 1 && cap > 0 && cap <= 128) {
    out += " A single pass of " + std::to_string(cap) + " tokens does not resolve differences below about 6 %.";
  }
  return out + "\n";
}

std::string validity_box(const Summary& s) {
  if (s.reasons.empty()) return "Valid: every planned request succeeded, counts come from the server, no prefix-cache reuse was seen.\n\n";
  return "**Not valid:** " + join(s.reasons) + ".\n\n";
}

std::string conditions(const Summary& s) {
  std::string out = "## Conditions\n\n";
  const auto text = [&](const char* a, const char* b) -> std::string {
    const json::Value* v = s.run.find(a);
    v = v == nullptr ? nullptr : v->find(b);
    return v != nullptr && v->is_string() ? v->as_string() : "unknown";
  };
  out += "Started " + text("started", "utc") + " by " + s.run.find("created_by")->as_string() + " (" + text("tool", "commit") + ") on " + text("client", "cpu") + ".\n";
  const auto drift = [&](const char* key) {
    const json::Value* clock = s.run.find("clock");
    const json::Value* v = clock == nullptr ? nullptr : clock->find(key);
    return v == nullptr ? 0 : v->to_i64().value_or(0);
  };
  if (std::abs(drift("realtime_drift_ns")) > kNotableDriftNs || std::abs(drift("suspended_ns")) > kNotableDriftNs) {
    out += "Note: during the run the date was set, or the machine slept (" + format_number(static_cast<double>(drift("realtime_drift_ns")) / 1e6, 0) + " ms, " +
           format_number(static_cast<double>(drift("suspended_ns")) / 1e6, 0) + " ms against the monotonic clock).\n";
  }
  if (s.run.find("resumed") != nullptr) out += "The run was interrupted and resumed.\n";
  const auto digests = weight_digests(s.run);
  for (const auto& [name, value] : digests) out += "Server reports " + name + " " + value + ".\n";
  if (digests.empty()) out += "The server reports no digest of its weights; give --meta weights.repo=... and --meta weights.revision=... for comparisons.\n";
  return out + "\n";
}

}  // namespace

std::string format_number(const std::optional<double>& value, int digits) {
  if (!value) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, *value);
  return text.data();
}

std::string marked(const Cell& cell, const std::optional<double>& value, int digits) {
  std::string out = format_number(value, digits);
  if (!value) return out;
  if (!cell.complete) out = "(" + out + ")";
  if (cell.cached) out += " (cached)";
  return out;
}

std::string headline_header() {
  return "| Engine | Thinking | Raw decode (tok/s, C1) | Best prefill (input tok/s) |\n|---|---|---|---|\n";
}

std::string headline_rows(const Summary& s) {
  std::vector<std::string> modes;
  for (const auto& pass : s.passes) {
    if (std::find(modes.begin(), modes.end(), pass.thinking) == modes.end()) modes.push_back(pass.thinking);
  }
  std::string out;
  for (const auto& mode : modes) {
    const Pass* decode = s.pass("decode", mode);
    const Pass* prefill = s.pass("prefill", mode);
    const Cell* c1 = decode == nullptr ? nullptr : decode->cell(1);
    const Cell* best = prefill == nullptr ? nullptr : prefill->best_prefill();
    out += "| " + s.label + " | " + mode + " | " + (c1 != nullptr && c1->eligible ? format_number(c1->decode, 1) : "-") + " | " +
           (best != nullptr ? format_number(best->prefill, 1) + " (C" + std::to_string(best->c) + ")" : "-") + " |\n";
  }
  return out;
}

std::string run_table(const Summary& s) {
  std::string out = "# " + s.label + ": " + s.model + "\n\n" + validity_box(s) + headline_header() + headline_rows(s) + "\n";
  for (const auto& pass : s.passes) out += pass_table(pass);
  for (const auto& t : s.thresholds) out += "Threshold " + t.expr + ": " + format_number(t.value, 3) + (t.pass ? ", met" : ", **not met**") + ".\n\n";
  return out + conditions(s) + limits(s);
}

}  // namespace dsf::bench
