#pragma once
// Element types of safetensors files and their scalar conversions (round to nearest even). Pure functions, any thread.
// E4M3 is "e4m3fn": no infinity, 0x7f/0xff are NaN, largest 448. E8M0 is 2^(code-127), 0xff is NaN. E2M1 is 4-bit: 0 .5 1 1.5 2 3 4 6.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsf::tensor {

enum class DType { kBool, kU8, kI8, kI16, kU16, kI32, kU32, kI64, kU64, kF16, kBF16, kF32, kF64, kF8E4M3, kF8E5M2, kF8E8M0 };

size_t dtype_size(DType t);                              // bytes per element
std::string_view dtype_name(DType t);                    // safetensors spelling: "BF16", "F8_E4M3", "F8_E8M0", ...
std::optional<DType> dtype_from_name(std::string_view);  // nullopt: unknown

using Shape = std::vector<int64_t>;
// Product of dims; nullopt on overflow or a negative dim. A scalar ([]) has one element.
std::optional<int64_t> element_count(const Shape& shape);
std::string shape_text(const Shape& shape);  // "[2304, 5120]"

inline float bf16_to_f32(uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); }
inline uint16_t f32_to_bf16(float f) {
  const auto u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline float round_bf16(float f) { return bf16_to_f32(f32_to_bf16(f)); }

float f16_to_f32(uint16_t v);
uint16_t f32_to_f16(float f);   // RNE, overflow to infinity
float e4m3_to_f32(uint8_t v);
uint8_t f32_to_e4m3(float f);   // RNE, saturates at +-448, NaN to 0x7f
float e5m2_to_f32(uint8_t v);
float e8m0_to_f32(uint8_t v);
float e2m1_to_f32(uint8_t nibble);  // low four bits
uint8_t f32_to_e2m1(float f);       // RNE on the value grid, ties to even mantissa, saturates at +-6

}  // namespace dsf::tensor
