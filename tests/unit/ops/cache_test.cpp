// The cache formats and the compressor.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tools/serve/backends/ops/fake_quant/fake_quant.h"
#include "tools/serve/backends/ops/kv_compress/kv_compress.h"

namespace dsf::serve::ops {
namespace {
std::vector<float> quantised(std::vector<float> x, FakeQuant format) {
  x.resize((x.size() + 31) / 32 * 32);
  fake_quant_ref({.x = x.data(), .n = std::ssize(x), .format = format});
  return x;
}
float next(float f) { return std::nextafter(f, 1e30f); }
}  // namespace

TEST_CASE("the power-of-two scale steps up just above 448 and 6 times a power of two") {
  for (int k = -20; k <= 20; ++k) {
    CAPTURE(k);
    const float p = std::ldexp(1.0f, k);
    CHECK(ceil_power_of_two(448.0f * p * (1.0f / 448.0f)) == p);
    CHECK(ceil_power_of_two(next(448.0f * p) * (1.0f / 448.0f)) == 2 * p);
    CHECK(ceil_power_of_two(6.0f * p * (1.0f / 6.0f)) == p);
    CHECK(ceil_power_of_two(next(6.0f * p) * (1.0f / 6.0f)) == 2 * p);
  }
}

TEST_CASE("window rows: e4m3 with ties to even, a power-of-two scale per 32") {
  // amax 448: scale 1. 17 and 19 lie between neighbours 16, 18, 20; 2^-10 is half the smallest step.
  const auto x = quantised({448, 17, 19, -17, 0.0009765625f, 0.0029296875f, 100}, FakeQuant::kWindow);
  CHECK(x[0] == 448);
  CHECK(x[1] == 16);
  CHECK(x[2] == 20);
  CHECK(x[3] == -16);
  CHECK(x[4] == 0.0f);
  CHECK(x[5] == 0.00390625f);
  CHECK(x[6] == 96);  // halfway between 96 and 104
  // amax 449: scale 2, so 449 becomes 448 and 17 is halfway between 16 and 18.
  const auto y = quantised({449, 17}, FakeQuant::kWindow);
  CHECK(y[0] == 448);
  CHECK(y[1] == 16);
  // Blocks are 32 wide: the second block has its own scale. All-zero blocks use the floor of 1e-4.
  std::vector<float> two(64);
  two[0] = 448;
  two[32] = 0.017f;
  const auto z = quantised(two, FakeQuant::kWindow);
  CHECK(std::fabs(z[32] - 0.017f) < 0.017f / 16);
  CHECK(quantised({0, 0}, FakeQuant::kWindow) == std::vector<float>(32));
}

TEST_CASE("index rows: e2m1 with ties to even, a power-of-two scale per 32") {
  const auto x = quantised({6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -5, -0.75f}, FakeQuant::kIndex);
  CHECK(std::vector<float>(x.begin(), x.begin() + 10) == std::vector<float>{6, 0, 1, 1, 2, 2, 4, 4, -4, -1});
  CHECK(quantised({7, 1}, FakeQuant::kIndex)[0] == 8);  // scale 2
}

TEST_CASE("compressed rows: e2m1 with an e4m3 scale per 16, and the clamp when the scale rounds down") {
  // 6.3 / 6 = 1.05 rounds to 1.0: 6.3 is clamped to 6 steps.
  CHECK(quantised({6.3f}, FakeQuant::kCompressed)[0] == 6.0f);
  // 6.6 / 6 = 1.1 rounds to 1.125.
  CHECK(quantised({6.6f, 1.0f}, FakeQuant::kCompressed)[0] == 6.75f);
  CHECK(quantised({6.6f, 1.0f}, FakeQuant::kCompressed)[1] == 1.125f);
  std::vector<float> two(32);
  two[0] = 6;
  two[16] = 0.6f;  // its own block of 16: 0.1 -> e4m3 0.1015625
  CHECK(quantised(two, FakeQuant::kCompressed)[16] == 0.609375f);
  // The smallest scale is 2^-9: e4m3's smallest subnormal.
  CHECK(quantised({1e-6f, 0.001953125f}, FakeQuant::kCompressed)[1] == 0.001953125f);
}

TEST_CASE("fake quantisation is idempotent: a cached value quantises to itself") {
  for (const FakeQuant format : {FakeQuant::kWindow, FakeQuant::kIndex}) {
    std::vector<float> x(256);
    uint32_t state = 12345;
    for (float& v : x) {
      state = state * 1664525u + 1013904223u;
      v = std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -31) * 3.0f;
    }
    const auto once = quantised(x, format);
    CHECK(quantised(once, format) == once);
  }
}

TEST_CASE("a ratio-2 group is a softmax per channel over its two tokens, then normed") {
  // Ring of 3 slots; group 1 = positions 2, 3 at slots 2, 0.
  const std::vector<float> value = {3, 30, 100, 100, 1, 10}, gate = {0, 1000, 5, 5, 0, 0};
  const std::vector<float> norm = {1, 1};
  std::vector<float> latent(2);
  kv_compress_ref({.value = value.data(),
                   .gate = gate.data(),
                   .norm = norm.data(),
                   .latent = latent.data(),
                   .first_group = 1,
                   .n_groups = 1,
                   .ratio = 2,
                   .ring_rows = 3,
                   .dim = 2});
  const float rms =
      std::sqrt((2.0f * 2.0f + 30.0f * 30.0f) / 2);  // equal gates: mean 2; a far larger gate: its value, no overflow
  CHECK(latent[0] == doctest::Approx(2 / rms));
  CHECK(latent[1] == doctest::Approx(30 / rms));
}

TEST_CASE("at ratio 1 every token is a group of its own, without a gate; no group, no output") {
  const std::vector<float> value = {3, -3, 4, 4}, norm = {1, 2};
  std::vector<float> latent(2, -1);
  KvCompressArgs args{.value = value.data(),
                      .norm = norm.data(),
                      .latent = latent.data(),
                      .first_group = 3,
                      .n_groups = 1,
                      .ratio = 1,
                      .ring_rows = 2,
                      .dim = 2};
  kv_compress_ref(args);  // position 3 at slot 1
  CHECK(latent == std::vector<float>{1, 2});
  args.n_groups = 0;
  latent = {-1, -1};
  kv_compress_ref(args);
  CHECK(latent == std::vector<float>{-1, -1});
}

}  // namespace dsf::serve::ops
