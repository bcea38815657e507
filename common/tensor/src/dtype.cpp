#include "dsf/tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::tensor {
namespace {
struct Row {
  DType type;
  std::string_view name;
  size_t size;
};
constexpr std::array<Row, 16> kTypes{{{DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1}, {DType::kI8, "I8", 1}, {DType::kI16, "I16", 2},
                                      {DType::kU16, "U16", 2}, {DType::kI32, "I32", 4}, {DType::kU32, "U32", 4}, {DType::kI64, "I64", 8},
                                      {DType::kU64, "U64", 8}, {DType::kF16, "F16", 2}, {DType::kBF16, "BF16", 2}, {DType::kF32, "F32", 4},
                                      {DType::kF64, "F64", 8}, {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E5M2, "F8_E5M2", 1},
                                      {DType::kF8E8M0, "F8_E8M0", 1}}};
const Row& row(DType t) {
  for (const Row& r : kTypes)
    if (r.type == t) return r;
  check_failed("dtype in table", __FILE__, __LINE__, "unknown DType");
}
}  // namespace

size_t dtype_size(DType t) { return row(t).size; }
std::string_view dtype_name(DType t) { return row(t).name; }
std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& r : kTypes)
    if (r.name == name) return r.type;
  return std::nullopt;
}

std::optional<int64_t> element_count(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) {
    if (d < 0) return std::nullopt;
    const auto next = checked_mul(n, d);
    if (!next) return std::nullopt;
    n = *next;
  }
  return n;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

float f16_to_f32(uint16_t v) {
  const uint32_t sign = uint32_t{v & 0x8000u} << 16;
  const uint32_t exponent = (v >> 10) & 0x1fu, mantissa = v & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) return std::copysign(static_cast<float>(mantissa) * 0x1p-24f, std::bit_cast<float>(sign | 0x3f800000u));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t f32_to_f16(float f) {
  const auto u = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                                               // below the smallest normal, 2^-14
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | static_cast<uint16_t>((rounded - (112u << 23)) >> 13));
}

float e4m3_to_f32(uint8_t v) {
  const int exponent = (v >> 3) & 15, mantissa = v & 7;
  if ((v & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (v & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t f32_to_e4m3(float f) {
  const auto sign = static_cast<uint8_t>(std::signbit(f) ? 0x80 : 0);
  if (std::isnan(f)) return 0x7f;
  const float a = std::fabs(f);
  if (a >= 448.0f) return static_cast<uint8_t>(sign | 0x7e);
  if (a < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(a * 0x1p9f)));  // 8 is the first normal
  int e = 0;
  (void)std::frexp(a, &e);                                             // a in [2^(e-1), 2^e)
  const auto m = static_cast<int>(std::nearbyint(std::ldexp(a, 4 - e)));  // 8..16
  const int code = ((e + 6) << 3) + (m - 8);                           // m == 16 carries into the exponent by itself
  return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::min(code, 0x7e)));
}

float e5m2_to_f32(uint8_t v) { return f16_to_f32(static_cast<uint16_t>(v << 8)); }

float e8m0_to_f32(uint8_t v) {
  if (v == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, int{v} - 127);
}

namespace {
constexpr std::array<float, 8> kE2m1{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
}

float e2m1_to_f32(uint8_t nibble) {
  const float v = kE2m1[nibble & 7];
  return (nibble & 8) != 0 ? -v : v;
}

uint8_t f32_to_e2m1(float f) {
  const float a = std::fabs(f);
  uint8_t code = 0;
  // Halfway goes to the even code (even mantissa bit): thresholds in turn exclusive and inclusive.
  constexpr std::array<float, 7> kHalf{0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  for (uint8_t i = 0; i < 7; ++i)
    if (a > kHalf[i] || (a == kHalf[i] && i % 2 == 1)) code = static_cast<uint8_t>(i + 1);
  return static_cast<uint8_t>(code | (std::signbit(f) ? 8 : 0));
}

}  // namespace dsf::tensor
