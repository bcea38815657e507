#include "tools/bench/scrape.h"

#include <array>
#include <cmath>

#include "dsf/base/numeric.h"

namespace dsf::bench {
namespace {

bool is_digest_name(std::string_view name) { return name.find("sha256") != std::string_view::npos || name.find("digest") != std::string_view::npos; }

// name="value" pairs; escapes inside values are kept as they are, except that \" does not end a value.
void take_labels(std::string_view text, std::map<std::string, std::string>& out) {
  while (true) {
    const size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return;
    size_t start = text.find_first_not_of(", {");
    if (start == std::string_view::npos || start > equals) start = 0;
    const std::string_view name = text.substr(start, equals - start);
    size_t end = equals + 2;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) return;
    if (is_digest_name(name)) out[std::string(name)] = std::string(text.substr(equals + 2, end - equals - 2));
    text.remove_prefix(end + 1);
  }
}

void take_line(std::string_view line, Scrape& out) {
  if (line.empty() || line.front() == '#') return;
  const size_t brace = line.find('{');
  const size_t close = brace == std::string_view::npos ? brace : line.rfind('}');
  if (brace != std::string_view::npos && (close == std::string_view::npos || close < brace)) return;
  const size_t name_end = brace != std::string_view::npos ? brace : line.find(' ');
  if (name_end == std::string_view::npos || name_end == 0) return;
  const std::string name(line.substr(0, name_end));
  if (brace != std::string_view::npos) take_labels(line.substr(brace, close - brace), out.digests);
  if (name.ends_with("_bucket")) return;
  std::string_view value = line.substr(close == std::string_view::npos ? name_end : close + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  value = value.substr(0, value.find(' '));  // a time stamp may follow
  const auto number = parse_double(value);
  if (number && std::isfinite(*number)) out.samples[name] += *number;
}

using Samples = std::map<std::string, double>;

// Growth of the first of these counters that both scrapes have.
template <size_t N>
std::optional<double> growth(const Samples& before, const Samples& after, const std::array<std::string_view, N>& names) {
  for (const auto name : names) {
    const auto b = before.find(std::string(name));
    const auto a = after.find(std::string(name));
    if (b != before.end() && a != after.end()) return a->second - b->second;
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 3> kRunning = {"vllm:num_requests_running", "sglang:num_running_reqs", "dsf:requests_running"};
constexpr std::array<std::string_view, 4> kQueries = {"vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries",
                                                      "vllm:gpu_prefix_cache_queries_total", "dsf:prefix_cache_queries_total"};
constexpr std::array<std::string_view, 4> kHits = {"vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total",
                                                   "dsf:prefix_cache_hits_total"};
constexpr std::array<std::string_view, 2> kDrafts = {"vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts"};
constexpr std::array<std::string_view, 2> kDrafted = {"vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"};
constexpr std::array<std::string_view, 2> kAccepted = {"vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"};

}  // namespace

Scrape parse_metrics(std::string_view text) {
  Scrape out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take_line(line, out);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

bool worth_keeping(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kParts = {"cache", "spec_decode", "running", "waiting", "accept", "draft", "_tokens_total"};
  for (const auto part : kParts) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

std::optional<double> running_requests(const Samples& samples) {
  for (const auto name : kRunning) {
    if (const auto it = samples.find(std::string(name)); it != samples.end()) return it->second;
  }
  return std::nullopt;
}

ServerDelta difference(const Samples& before, const Samples& after) {
  ServerDelta out;
  const auto queries = growth(before, after, kQueries), hits = growth(before, after, kHits);
  if (queries && hits && *queries > 0) out.cache_hit_fraction = *hits / *queries;
  out.drafts = growth(before, after, kDrafts);
  out.drafted = growth(before, after, kDrafted);
  out.accepted = growth(before, after, kAccepted);
  if (out.drafts && out.accepted && *out.drafts > 0) out.tokens_per_round = (*out.drafts + *out.accepted) / *out.drafts;
  return out;
}

}  // namespace dsf::bench
