#include "tools/serve/backends/ops/rope/rope.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace dsf::serve::ops {

namespace {
// A published value of nine digits (model.md section 8): they do not settle the last bit of an f32.
doctest::Approx rounded(double nine_digits) { return doctest::Approx(nine_digits).epsilon(0x1p-24).scale(0); }
}  // namespace

TEST_CASE("release frequencies: plain theta 10000 and YaRN theta 160000") {
  const auto plain = rope_frequencies(64, 10000, {});
  REQUIRE(plain.size() == 32);
  CHECK(plain[0] == 1.0f);
  CHECK(plain[1] == rounded(0.749894209));
  CHECK(plain[31] == rounded(0.000133352143));
  const auto yarn = rope_frequencies(
      64, 160000, {.enabled = true, .factor = 16, .beta_fast = 32, .beta_slow = 1, .original_length = 65536});
  CHECK(yarn[1] == rounded(0.687656022));
  CHECK(yarn[8] == rounded(0.05));
  CHECK(yarn[15] == rounded(0.00363553858));
  CHECK(yarn[16] == rounded(0.002265625));
  CHECK(yarn[20] == rounded(0.000296977778));
  CHECK(yarn[24] == rounded(1.953125e-05));
  CHECK(yarn[25] == rounded(5.37231267e-06));
  CHECK(yarn[31] == rounded(5.68052904e-07));
}

TEST_CASE("the lower corner of the YaRN ramp is clamped at zero in small models") {
  const auto yarn = rope_frequencies(
      32, 160000, {.enabled = true, .factor = 16, .beta_fast = 32, .beta_slow = 1, .original_length = 64});
  const auto plain = rope_frequencies(32, 160000, {});
  CHECK(yarn[0] == plain[0]);  // low = 0, high = 4
  CHECK(std::fabs(yarn[2] / plain[2] - (0.5f / 16 + 0.5f)) < 1e-6f);
  CHECK(yarn[4] == plain[4] / 16);
}

TEST_CASE("only the last values of a head turn, pairs are interleaved, and the inverse turns back") {
  const std::vector<float> freq = {1.0f, 0.5f};
  std::vector<float> x = {9, 8, 1, 0, 0, 2, 7, 6, 0, 1, 3, 0};  // two heads of 6, last 4 rotate
  const std::vector<float> before = x;
  const std::vector<int64_t> position = {2};
  RopeArgs args{.x = x.data(),
                .positions = position.data(),
                .freq = freq.data(),
                .n_rows = 1,
                .n_heads = 2,
                .head_dim = 6,
                .rope_dim = 4};
  rope_ref(args);
  CHECK(x[0] == 9);
  CHECK(x[1] == 8);
  CHECK(x[2] == doctest::Approx(std::cos(2.0)));
  CHECK(x[3] == doctest::Approx(std::sin(2.0)));
  CHECK(x[4] == doctest::Approx(-2 * std::sin(1.0)));
  CHECK(x[5] == doctest::Approx(2 * std::cos(1.0)));
  CHECK(x[8] == doctest::Approx(-std::sin(2.0)));
  args.inverse = true;
  rope_ref(args);
  for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(before[i]).epsilon(1e-6));
}

TEST_CASE("far positions use the f32 product of position and frequency") {
  const float f = 0.687656022f;
  std::vector<float> x = {1, 0};
  const std::vector<int64_t> position = {1048575};
  rope_ref({.x = x.data(),
            .positions = position.data(),
            .freq = &f,
            .n_rows = 1,
            .n_heads = 1,
            .head_dim = 2,
            .rope_dim = 2});
  const float angle = 1048575.0f * f;
  CHECK(x[0] == static_cast<float>(std::cos(static_cast<double>(angle))));
  CHECK(x[1] == static_cast<float>(std::sin(static_cast<double>(angle))));
}

}  // namespace dsf::serve::ops
