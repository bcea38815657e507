#include "tools/bench/thresholds.h"

#include <algorithm>
#include <array>
#include <vector>

#include "dsf/base/numeric.h"

namespace dsf::bench {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) out.emplace_back();
    else out.back() += c;
  }
  return out;
}

constexpr std::array<std::string_view, 6> kMetrics = {"decode", "prefill", "ttft", "tpot", "itl", "goodput"};
constexpr std::array<std::string_view, 4> kStats = {"min_ms", "median_ms", "max_ms", "mean_ms"};

bool known(const auto& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); }

// Rates of one cell; latencies need a statistic.
std::optional<double> cell_value(const Cell& cell, const std::string& metric, const std::string& stat) {
  if (!cell.eligible) return std::nullopt;
  if (metric == "decode") return cell.decode;
  if (metric == "prefill") return cell.prefill;
  if (metric == "goodput") return cell.good ? std::optional(cell.good->requests_per_s) : std::nullopt;
  std::vector<double> values;
  std::vector<Weighted> weighted;
  for (const auto& m : cell.runs) {
    const auto& from = metric == "ttft" ? m.ttft_ms : m.tpot_ms;
    values.insert(values.end(), from.begin(), from.end());
    weighted.insert(weighted.end(), m.itl_ms.begin(), m.itl_ms.end());
  }
  if (metric == "itl") {
    if (stat == "mean_ms") return weighted_mean(weighted);
    return weighted_quantile(weighted, stat == "min_ms" ? 0 : stat == "max_ms" ? 1 : 0.5);
  }
  if (stat == "min_ms") return min_of(values);
  if (stat == "max_ms") return max_of(values);
  return stat == "mean_ms" ? mean(values) : median(values);
}

}  // namespace

Result<Threshold> parse_threshold(const std::string& expr) {
  const size_t equals = expr.find('=');
  const auto limit = equals == std::string::npos ? std::nullopt : parse_double(std::string_view(expr).substr(equals + 1));
  const std::vector<std::string> parts = split(expr.substr(0, equals), '.');
  const auto bad = [&](std::string what) { return fail(Code::kUsage, expr, std::move(what), "write it like decode.off.c1=50 or ttft.off.c1.median_ms=1500"); };
  if (!limit) return bad("a threshold needs '=NUMBER'");
  if (parts.size() < 3 || parts.size() > 4 || !known(kMetrics, parts[0])) return bad("a threshold is metric.thinking.place[.stat]");
  const bool level = parts[2].starts_with('c') && parse_u64(parts[2].substr(1)).has_value();
  if (!level && parts[2] != "best" && parts[2] != "median") return bad("the place is cN, best or median");
  if (parts.size() == 4 && !known(kStats, parts[3])) return bad("the statistic is min_ms, median_ms, max_ms or mean_ms");
  return Threshold{expr.substr(0, equals), *limit};
}

std::optional<double> lookup(const Summary& summary, const std::string& path) {
  const std::vector<std::string> parts = split(path, '.');
  if (parts.size() < 3) return std::nullopt;
  const bool prefill = parts[0] == "prefill";
  const Pass* pass = summary.pass(prefill ? "prefill" : "decode", parts[1]);
  if (pass == nullptr && parts[0] == "ttft") pass = summary.pass("prefill", parts[1]);
  if (pass == nullptr) return std::nullopt;
  const std::string stat = parts.size() > 3 ? parts[3] : "median_ms";
  if (parts[2].starts_with('c')) {
    const Cell* cell = pass->cell(parse_i64(parts[2].substr(1)).value_or(0));
    return cell == nullptr ? std::nullopt : cell_value(*cell, parts[0], stat);
  }
  std::vector<double> values;
  for (const auto& cell : pass->cells) {
    if (const auto v = cell_value(cell, parts[0], stat)) values.push_back(*v);
  }
  if (parts[2] == "median") return median(values);
  const bool rate = prefill || parts[0] == "decode" || parts[0] == "goodput";
  return rate ? max_of(values) : min_of(values);
}

ThresholdResult check_threshold(const Summary& summary, const Threshold& t, bool under) {
  ThresholdResult out;
  out.expr = t.path + (under ? ">=" : "<=") + json::format_double(t.limit);
  out.value = lookup(summary, t.path);
  out.pass = out.value && (under ? *out.value >= t.limit : *out.value <= t.limit);
  return out;
}

}  // namespace dsf::bench
