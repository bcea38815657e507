#pragma once
// Statistics that admit small samples (bench.md 1.10, 3.5). Pure functions, any thread.
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dsf::bench {

// Type 7 (linear interpolation at (N-1)q) of unsorted values. nullopt when N < 1/(1-q): a p99 of 36 values is not a measurement.
// The median of one value is that value.
std::optional<double> quantile(std::vector<double> values, double q);
std::optional<double> median(std::vector<double> values);
std::optional<double> mean(const std::vector<double>& values);
// Sample form (N-1); nullopt below two values.
std::optional<double> stddev(const std::vector<double>& values);
std::optional<double> min_of(const std::vector<double>& values);
std::optional<double> max_of(const std::vector<double>& values);

struct Weighted {
  double value = 0, weight = 0;
};
// Smallest value whose cumulative weight reaches q of the total; nullopt without weight.
std::optional<double> weighted_quantile(std::vector<Weighted> values, double q);
std::optional<double> weighted_mean(const std::vector<Weighted>& values);

// y = offset + slope x by least squares; nullopt with fewer than two different x.
struct LineFit {
  double offset = 0, slope = 0;
};
std::optional<LineFit> fit_line(const std::vector<std::pair<double, double>>& points);

// Paired ratio B/A over repeats: geometric mean and, for 2..10 pairs, the 95 % interval from Student's t on the logs.
struct Ratio {
  double value = 0;
  std::optional<std::pair<double, double>> interval;
};
// nullopt when sizes differ, are zero, or a value is not positive.
std::optional<Ratio> paired_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace dsf::bench
