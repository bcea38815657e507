#include "tools/serve/backends/ops/hyper_mix/hyper_mix.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tools/serve/backends/ops/engram_gate/engram_gate.h"

namespace dsf::serve::ops {
namespace {
float sigmoid(float z) { return 1 / (1 + std::exp(-z)); }
}  // namespace

TEST_CASE("with a zero projection the mix is the base: sigmoid, twice sigmoid, Sinkhorn of the comb") {
  const int64_t s = 4, d = 2;
  std::vector<float> x(8, 1.0f), fn(24 * 8), scale = {1, 1, 1}, base(24), pre(4), post(4), comb(16);
  base[1] = 0.5f;   // pre[1]
  base[6] = -0.5f;  // post[2]
  hyper_mix_ref({.x = x.data(),
                 .fn = fn.data(),
                 .scale = scale.data(),
                 .base = base.data(),
                 .pre = pre.data(),
                 .post = post.data(),
                 .comb = comb.data(),
                 .n_rows = 1,
                 .n_streams = s,
                 .dim = d});
  CHECK(pre[0] == doctest::Approx(0.5f + 1e-6f));
  CHECK(pre[1] == doctest::Approx(sigmoid(0.5f) + 1e-6f));
  CHECK(post[0] == doctest::Approx(1.0f));
  CHECK(post[2] == doctest::Approx(2 * sigmoid(-0.5f)));
  for (const float c : comb) CHECK(c == doctest::Approx(0.25f).epsilon(1e-5));
}

TEST_CASE("the projection is scaled by the inverse rms of all streams together, and each part has its scale") {
  std::vector<float> x = {2, 2, 2, 2, 2, 2, 2, 2}, fn(24 * 8), scale = {3, 5, 7}, base(24), pre(4), post(4), comb(16);
  for (int i = 0; i < 8; ++i) {
    fn[static_cast<size_t>(0 * 8 + i)] = 0.125f;  // m[0] = 2 * rs = 1
    fn[static_cast<size_t>(5 * 8 + i)] = 0.25f;   // m[5] = 2
  }
  hyper_mix_ref({.x = x.data(),
                 .fn = fn.data(),
                 .scale = scale.data(),
                 .base = base.data(),
                 .pre = pre.data(),
                 .post = post.data(),
                 .comb = comb.data(),
                 .n_rows = 1,
                 .n_streams = 4,
                 .dim = 2});
  CHECK(pre[0] == doctest::Approx(sigmoid(3) + 1e-6f));
  CHECK(post[1] == doctest::Approx(2 * sigmoid(10)));
}

TEST_CASE("comb is doubly stochastic: its columns sum to one within 1e-5") {
  std::vector<float> x(16), fn(24 * 16), scale = {1, 1, 1}, base(24), pre(4), post(4), comb(16);
  uint32_t state = 1;
  const auto random = [&] {
    return static_cast<float>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
  };
  for (float& v : x) v = random();
  for (float& v : fn) v = random();
  for (float& v : base) v = random();
  hyper_mix_ref({.x = x.data(),
                 .fn = fn.data(),
                 .scale = scale.data(),
                 .base = base.data(),
                 .pre = pre.data(),
                 .post = post.data(),
                 .comb = comb.data(),
                 .n_rows = 1,
                 .n_streams = 4,
                 .dim = 4});
  for (size_t k = 0; k < 4; ++k) CHECK(std::fabs(comb[k] + comb[4 + k] + comb[8 + k] + comb[12 + k] - 1) < 1e-5f);
  for (size_t j = 0; j < 4; ++j)
    CHECK(std::fabs(comb[4 * j] + comb[4 * j + 1] + comb[4 * j + 2] + comb[4 * j + 3] - 1) < 1e-3f);
}

TEST_CASE("one Sinkhorn iteration is the softmax and one column normalisation") {
  std::vector<float> x(2, 1.0f), fn(8 * 2), scale = {1, 1, 1}, base = {0, 0, 0, 0, 0, 1, 0, 0}, pre(2), post(2),
                                            comb(4);
  hyper_mix_ref({.x = x.data(),
                 .fn = fn.data(),
                 .scale = scale.data(),
                 .base = base.data(),
                 .pre = pre.data(),
                 .post = post.data(),
                 .comb = comb.data(),
                 .n_rows = 1,
                 .n_streams = 2,
                 .dim = 1,
                 .sinkhorn_iters = 1});
  const float soft = std::exp(1.0f) / (1 + std::exp(1.0f));  // row 0 = (1 - soft, soft), row 1 = (0.5, 0.5)
  CHECK(comb[0] == doctest::Approx((1 - soft) / (1 - soft + 0.5f)).epsilon(1e-5));
  CHECK(comb[1] == doctest::Approx(soft / (soft + 0.5f)).epsilon(1e-5));
}

TEST_CASE("collapse weighs streams; expand contracts comb over its first index") {
  const std::vector<float> pre = {0.5f, 2};
  std::vector<float> x = {1, 2, 10, 20}, y(2);  // S = 2, D = 2
  hyper_collapse_ref({.x = x.data(), .pre = pre.data(), .y = y.data(), .n_rows = 1, .n_streams = 2, .dim = 2});
  CHECK(y == std::vector<float>{20.5f, 41});
  const std::vector<float> sub = {100, 200}, post = {1, 2}, comb = {1, 2, 3, 4};  // row = source
  hyper_expand_ref({.y = sub.data(),
                    .post = post.data(),
                    .comb = comb.data(),
                    .x = x.data(),
                    .n_rows = 1,
                    .n_streams = 2,
                    .dim = 2});
  CHECK(x ==
        std::vector<float>{100 + 1 * 1 + 3 * 10, 200 + 1 * 2 + 3 * 20, 200 + 2 * 1 + 4 * 10, 400 + 2 * 2 + 4 * 20});
}

TEST_CASE(
    "the Engram gate is the sigmoid of a signed root; streams gate one value each their own way; dead rows get "
    "nothing") {
  // S = 2, D = 1: x and key normalise to their signs, so dot = sign * q * k.
  const std::vector<float> kv = {3, -2, 10, 3, -2, 10}, q = {4, 1}, k = {1, 9};
  const std::vector<uint8_t> dead = {0, 1};
  std::vector<float> x = {5, 7, 5, 7};
  engram_gate_ref({.kv = kv.data(),
                   .q_weight = q.data(),
                   .k_weight = k.data(),
                   .dead = dead.data(),
                   .x = x.data(),
                   .n_rows = 2,
                   .n_streams = 2,
                   .dim = 1});
  CHECK(x[0] == doctest::Approx(5 + 10 * sigmoid(2)));   // dot 4
  CHECK(x[1] == doctest::Approx(7 + 10 * sigmoid(-3)));  // dot -9
  CHECK(x[2] == 5);
  CHECK(x[3] == 7);
}

TEST_CASE("a vanishing Engram dot product is clamped at 1e-6 under the root") {
  const std::vector<float> kv = {0, 8}, one = {1};
  std::vector<float> x = {1};
  engram_gate_ref({.kv = kv.data(),
                   .q_weight = one.data(),
                   .k_weight = one.data(),
                   .dead = nullptr,
                   .x = x.data(),
                   .n_rows = 1,
                   .n_streams = 1,
                   .dim = 1});
  CHECK(x[0] == doctest::Approx(1 + 8 * sigmoid(1e-3f)).epsilon(1e-7));
}

}  // namespace dsf::serve::ops
