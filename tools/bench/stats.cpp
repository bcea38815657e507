#include "tools/bench/stats.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dsf::bench {

std::optional<double> quantile(std::vector<double> values, double q) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return std::nullopt;
  if (values.size() > 1 || q > 0.5) {
    // 1e-9: 1/(1-0.9) is 10.000000000000002 in binary.
    if (n + 1e-9 < 1.0 / (1.0 - q)) return std::nullopt;
  }
  std::sort(values.begin(), values.end());
  const double h = (n - 1) * q;
  const auto low = static_cast<size_t>(std::floor(h));
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (h - static_cast<double>(low)) * (values[high] - values[low]);
}

std::optional<double> median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

std::optional<double> mean(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::optional<LineFit> fit_line(const std::vector<std::pair<double, double>>& points) {
  if (points.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / n;
    mean_y += y / n;
  }
  for (const auto& [x, y] : points) {
    xx += (x - mean_x) * (x - mean_x);
    xy += (x - mean_x) * (y - mean_y);
  }
  if (!(xx > 0)) return std::nullopt;
  return LineFit{mean_y - xy / xx * mean_x, xy / xx};
}

std::optional<double> stddev(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const double m = *mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::optional<double> min_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return *std::min_element(values.begin(), values.end());
}

std::optional<double> max_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return *std::max_element(values.begin(), values.end());
}

std::optional<double> weighted_quantile(std::vector<Weighted> values, double q) {
  std::sort(values.begin(), values.end(), [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double total = 0;
  for (const auto& v : values) total += v.weight;
  if (!(total > 0)) return std::nullopt;
  double seen = 0;
  for (const auto& v : values) {
    seen += v.weight;
    if (seen >= q * total * (1 - 1e-12)) return v.value;
  }
  return values.back().value;
}

std::optional<double> weighted_mean(const std::vector<Weighted>& values) {
  double total = 0, sum = 0;
  for (const auto& v : values) {
    total += v.weight;
    sum += v.weight * v.value;
  }
  if (!(total > 0)) return std::nullopt;
  return sum / total;
}

std::optional<Ratio> paired_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  // t(0.975, R-1) for R = 2..10.
  static constexpr std::array<double, 9> kT = {12.70620474, 4.302652730, 3.182446305, 2.776445105, 2.570581836,
                                               2.446911851, 2.364624252, 2.306004135, 2.262157163};
  if (a.size() != b.size() || a.empty()) return std::nullopt;
  std::vector<double> logs;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(a[i] > 0) || !(b[i] > 0)) return std::nullopt;
    logs.push_back(std::log(b[i] / a[i]));
  }
  const double m = *mean(logs);
  Ratio out{std::exp(m), std::nullopt};
  const size_t n = logs.size();
  if (n >= 2 && n - 2 < kT.size()) {
    const double half = kT[n - 2] * *stddev(logs) / std::sqrt(static_cast<double>(n));
    out.interval = std::pair(std::exp(m - half), std::exp(m + half));
  }
  return out;
}

}  // namespace dsf::bench
