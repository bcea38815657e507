#include "tools/bench/stats.h"

#include <doctest/doctest.h>

using namespace dsf::bench;
using doctest::Approx;

TEST_CASE("quantiles refuse samples that are too small for them") {
  CHECK(*quantile({100, 200, 300, 400}, 0.5) == 250);
  CHECK_FALSE(quantile({100, 200, 300, 400}, 0.9));
  std::vector<double> v;
  for (int i = 36; i >= 1; --i) v.push_back(i);
  CHECK(*quantile(v, 0.5) == Approx(18.5));
  CHECK(*quantile(v, 0.9) == Approx(32.5));
  CHECK(*quantile(v, 0.95) == Approx(34.25));
  CHECK_FALSE(quantile(v, 0.99));
  CHECK(*quantile({7}, 0.5) == 7);
  CHECK_FALSE(quantile({7}, 0.9));
  CHECK_FALSE(quantile({}, 0.5));
  CHECK(quantile(std::vector<double>(10, 3.0), 0.9));
}

TEST_CASE("the ratio of paired repeats and its interval") {
  const auto r = paired_ratio({50, 52, 51}, {60, 61, 63});
  REQUIRE(r);
  CHECK(r->value == Approx(1.2025210949).epsilon(1e-9));
  REQUIRE(r->interval);
  CHECK(r->interval->first == Approx(1.1275790015).epsilon(1e-9));
  CHECK(r->interval->second == Approx(1.2824440520).epsilon(1e-9));
  CHECK_FALSE(paired_ratio({50}, {60})->interval);
  CHECK_FALSE(paired_ratio({50, 0}, {60, 1}));
  CHECK_FALSE(paired_ratio({50, 51}, {60}));
}

TEST_CASE("weighted quantiles take the value that reaches the weight") {
  const std::vector<Weighted> v = {{20, 3}, {15, 4}, {17.5, 4}, {15, 4}};
  CHECK(*weighted_quantile(v, 0.5) == 15);
  CHECK(*weighted_quantile(v, 0.9) == 20);
  CHECK(*weighted_mean(v) == Approx(250.0 / 15));
  CHECK_FALSE(weighted_quantile({}, 0.5));
}

TEST_CASE("the deviation of one value is unknown, not zero") {
  CHECK_FALSE(stddev({3}));
  CHECK(*stddev({1, 3}) == Approx(1.4142135623730951));
}
