#pragma once
// Checked arithmetic for numbers that come from files, byte units, little-endian access, and lossless text to number.
// Pure functions, any thread. Numbers from files are untrusted: use checked_* before any of them becomes a size.
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dsf {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T out{};
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}
template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T out{};
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}
template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return static_cast<T>((a + b - 1) / b);
}
template <std::integral T>
constexpr T round_up(T a, T b) {
  return static_cast<T>(ceil_div(a, b) * b);
}

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// Little-endian load and store of trivially copyable integers and floats; data.size() must cover sizeof(T).
template <class T>
T load_le(const void* p) {
  static_assert(std::endian::native == std::endian::little, "every target of this project is little-endian");
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store_le(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// Whole text to a number; nullopt on anything left over, overflow, sign or space. "12", not "+12", " 12" or "0x12".
std::optional<uint64_t> parse_u64(std::string_view text);
std::optional<int64_t> parse_i64(std::string_view text);
std::optional<double> parse_double(std::string_view text);

// "64KiB", "1.5 GiB", "10MB", "123": bytes. KB/MB/GB/TB are powers of 1000. nullopt when malformed or over 2^63.
std::optional<uint64_t> parse_bytes(std::string_view text);
// "250ms", "1.5s", "10m", "2h", or bare seconds: microseconds.
std::optional<int64_t> parse_duration_us(std::string_view text);
// 1536 -> "1.5 KiB"; for people, never parsed back.
std::string format_bytes(uint64_t bytes);

std::string to_hex(std::span<const std::byte> bytes);
// nullopt unless text is an even number of hex digits (either case).
std::optional<std::string> from_hex(std::string_view text);

inline std::span<const std::byte> as_bytes(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
inline std::string_view as_text(std::span<const std::byte> b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

}  // namespace dsf
