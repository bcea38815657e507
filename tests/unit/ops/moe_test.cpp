#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tools/serve/backends/ops/moe_experts/moe_experts.h"
#include "tools/serve/backends/ops/moe_route/moe_route.h"

namespace dsf::serve::ops {
namespace {
float score(float z) { return std::sqrt(std::log1p(std::exp(z))); }
float silu(float z) { return z / (1 + std::exp(-z)); }
}  // namespace

TEST_CASE("routing: the bias steers the choice, the weight comes from the score without it") {
  const std::vector<float> x = {1}, gate = {3, 2, 1, 0}, bias = {-10, 0, 0, 5};
  std::vector<int32_t> ids(2);
  std::vector<float> weights(2);
  MoeRouteArgs args{.x = x.data(),
                    .gate = gate.data(),
                    .bias = bias.data(),
                    .ids = ids.data(),
                    .weights = weights.data(),
                    .n_rows = 1,
                    .dim = 1,
                    .n_experts = 4,
                    .k = 2,
                    .temperature = 1,
                    .route_scale = 1.5f};
  moe_route_ref(args);
  CHECK(ids == std::vector<int32_t>{1, 3});  // ascending, not by rank
  CHECK(weights[0] == doctest::Approx(1.5 * score(2) / (score(2) + score(0))));
  CHECK(weights[1] == doctest::Approx(1.5 * score(0) / (score(2) + score(0))));
  args.normalise = false;
  args.temperature = 2;
  moe_route_ref(args);
  CHECK(weights[0] == doctest::Approx(1.5 * score(1)));
}

TEST_CASE("routing: equal scores choose the lower expert, huge logits stay finite") {
  const std::vector<float> x = {1}, gate = {1, 1, 1}, bias = {0, 0, 0}, big = {100, 30, -100};
  std::vector<int32_t> ids(2);
  std::vector<float> weights(2);
  moe_route_ref({.x = x.data(),
                 .gate = gate.data(),
                 .bias = bias.data(),
                 .ids = ids.data(),
                 .weights = weights.data(),
                 .n_rows = 1,
                 .dim = 1,
                 .n_experts = 3,
                 .k = 2});
  CHECK(ids == std::vector<int32_t>{0, 1});
  moe_route_ref({.x = x.data(),
                 .gate = big.data(),
                 .bias = bias.data(),
                 .ids = ids.data(),
                 .weights = weights.data(),
                 .n_rows = 1,
                 .dim = 1,
                 .n_experts = 3,
                 .k = 2,
                 .normalise = false});
  CHECK(weights[0] == doctest::Approx(10));
  CHECK(weights[1] == doctest::Approx(std::sqrt(30.0)));
}

TEST_CASE("experts: g is clamped above only, u on both sides, and weight and shared expert add up") {
  // dim 1, width 1; expert 0 hits every clamp, expert 1 none.
  const float w1[] = {50, -1}, w3[] = {-50, 2}, w2[] = {2, 3}, shared_w[] = {1};
  const ExpertWeights experts[] = {{.w1 = &w1[0], .w3 = &w3[0], .w2 = &w2[0], .inter = 1},
                                   {.w1 = &w1[1], .w3 = &w3[1], .w2 = &w2[1], .inter = 1}};
  const ExpertWeights shared{.w1 = shared_w, .w3 = shared_w, .w2 = shared_w, .inter = 1};
  const std::vector<float> x = {1, -1}, weights = {0.5f, 0.25f, 0.5f, 0.25f};
  const std::vector<int32_t> ids = {0, 1, 0, 1};
  std::vector<float> y(2);
  MoeExpertsArgs args{.x = x.data(),
                      .ids = ids.data(),
                      .weights = weights.data(),
                      .experts = experts,
                      .shared = nullptr,
                      .y = y.data(),
                      .n_rows = 2,
                      .dim = 1,
                      .k = 2,
                      .limit = 10};
  moe_experts_ref(args);
  CHECK(y[0] == doctest::Approx(0.5 * silu(10) * -10 * 2 + 0.25 * silu(-1) * 2 * 3));
  CHECK(y[1] == doctest::Approx(0.5 * silu(-50) * 10 * 2 + 0.25 * silu(1) * -2 * 3));  // g = -50 is not clamped
  args.shared = &shared;
  const float before = y[0];
  moe_experts_ref(args);
  CHECK(y[0] == doctest::Approx(before + silu(1)));
}

}  // namespace dsf::serve::ops
