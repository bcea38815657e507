#include "dsf/tensor/dtype.h"

#include <cmath>
#include <doctest/doctest.h>
#include <limits>

using namespace dsf::tensor;

namespace {
// The nearest representable value by search over all codes, ties to the even code: the definition, written without any bit tricks.
template <class ToFloat>
int nearest_code(float f, int n_codes, ToFloat to_float) {
  int best = 0;
  for (int c = 1; c < n_codes; ++c) {
    const double d = std::fabs(double{to_float(c)} - double{f}), b = std::fabs(double{to_float(best)} - double{f});
    if (d < b || (d == b && c % 2 == 0)) best = c;
  }
  return best;
}
}  // namespace

TEST_CASE("every e4m3 code survives the round trip, and rounding is to nearest even") {
  for (int c = 0; c < 256; ++c) {
    if ((c & 0x7f) == 0x7f) {
      CHECK(std::isnan(e4m3_to_f32(static_cast<uint8_t>(c))));
      continue;
    }
    CHECK(f32_to_e4m3(e4m3_to_f32(static_cast<uint8_t>(c))) == c);
  }
  CHECK(e4m3_to_f32(0x7e) == 448.0f);
  CHECK(e4m3_to_f32(1) == 0x1p-9f);
  CHECK(f32_to_e4m3(1e9f) == 0x7e);
  CHECK(f32_to_e4m3(-std::numeric_limits<float>::infinity()) == 0xfe);
  for (float f = 0x1p-11f; f < 450; f *= 1.0371f)
    CHECK(int{f32_to_e4m3(f)} == nearest_code(f, 0x7f, [](int c) { return e4m3_to_f32(static_cast<uint8_t>(c)); }));
  for (int c = 0; c < 0x7e; ++c) {  // the exact middles
    const float mid = (e4m3_to_f32(static_cast<uint8_t>(c)) + e4m3_to_f32(static_cast<uint8_t>(c + 1))) / 2;
    CHECK(int{f32_to_e4m3(mid)} == (c % 2 == 0 ? c : c + 1));
  }
}

TEST_CASE("e2m1 rounds to nearest even and saturates at 6") {
  for (float f = 0; f < 8; f += 0.0625f)
    CHECK(int{f32_to_e2m1(f)} == nearest_code(f, 8, [](int c) { return e2m1_to_f32(static_cast<uint8_t>(c)); }));
  CHECK(f32_to_e2m1(-1.5f) == (8 | 3));
  CHECK(e2m1_to_f32(0xf) == -6.0f);
}

TEST_CASE("every half survives the round trip; rounding, overflow and subnormals are right") {
  for (uint32_t c = 0; c < 0x10000; ++c) {
    const float f = f16_to_f32(static_cast<uint16_t>(c));
    if (!std::isnan(f)) REQUIRE(f32_to_f16(f) == c);
  }
  CHECK(f16_to_f32(0x3c00) == 1.0f);
  CHECK(f32_to_f16(65519.0f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == 0x7c00);
  CHECK(f32_to_f16(0x1p-25f) == 0);  // tie to even
  CHECK(f32_to_f16(0x1.8p-25f) == 1);
  CHECK(f32_to_f16(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(f32_to_f16(1.0f + 0x1.8p-10f) == 0x3c02);
}

TEST_CASE("bf16 rounds to nearest even and keeps NaN") {
  CHECK(f32_to_bf16(1.0f) == 0x3f80);
  CHECK(f32_to_bf16(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(f32_to_bf16(1.0f + 0x1.8p-7f) == 0x3f82);
  CHECK(std::isnan(round_bf16(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("e8m0 is a power of two") {
  CHECK(e8m0_to_f32(127) == 1.0f);
  CHECK(e8m0_to_f32(0) == 0x1p-127f);
  CHECK(e8m0_to_f32(254) == 0x1p127f);
  CHECK(std::isnan(e8m0_to_f32(255)));
}

TEST_CASE("shapes count their elements and notice overflow") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({3, 0}) == 0);
  CHECK_FALSE(element_count({INT64_MAX, 2}));
  CHECK_FALSE(element_count({-1}));
  CHECK(shape_text({2304, 5120}) == "[2304, 5120]");
  CHECK(dtype_from_name("F8_E8M0") == DType::kF8E8M0);
  CHECK_FALSE(dtype_from_name("F4"));
}
