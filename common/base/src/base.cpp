#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/base/result.h"
#include "dsf/base/time.h"

namespace dsf {

std::string Error::line() const {
  std::string out = subject;
  if (!out.empty()) out += ": ";
  out += what;
  if (!fix.empty()) out += "; " + fix;
  std::replace_if(out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return out;
}

Code worst(Code a, Code b) {
  static constexpr std::array kOrder{Code::kBug, Code::kContent, Code::kLocal, Code::kRefused, Code::kMissing, Code::kRemote, Code::kNo};
  for (Code c : kOrder)
    if (a == c || b == c) return c;
  return a == Code::kOk ? b : a;
}

void check_failed(const char* condition, const char* file, int line, std::string_view words) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %.*s\n", file, line, condition, static_cast<int>(words.size()), words.data());
  std::abort();
}

namespace {
template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T v{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (ec != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return v;
}

struct Unit {
  std::string_view name;
  double factor;
};

// A number followed by one of units; the empty name is the default unit.
std::optional<double> parse_with_unit(std::string_view text, std::span<const Unit> units) {
  size_t n = 0;
  while (n < text.size() && (std::isdigit(static_cast<unsigned char>(text[n])) != 0 || text[n] == '.')) ++n;
  const auto number = parse_whole<double>(text.substr(0, n));
  text.remove_prefix(n);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  for (const Unit& u : units)
    if (u.name == text) return *number * u.factor;
  return std::nullopt;
}
}  // namespace

std::optional<uint64_t> parse_u64(std::string_view text) { return parse_whole<uint64_t>(text); }
std::optional<int64_t> parse_i64(std::string_view text) { return parse_whole<int64_t>(text); }
std::optional<double> parse_double(std::string_view text) { return parse_whole<double>(text); }

std::optional<uint64_t> parse_bytes(std::string_view text) {
  if (const auto whole = parse_u64(text)) return *whole >> 63 != 0 ? std::nullopt : whole;
  static constexpr std::array<Unit, 11> kUnits{{{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                                                {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}};
  const auto v = parse_with_unit(text, kUnits);
  if (!v || *v < 0 || *v >= 0x1p63) return std::nullopt;
  return static_cast<uint64_t>(*v);
}

std::optional<int64_t> parse_duration_us(std::string_view text) {
  static constexpr std::array<Unit, 6> kUnits{{{"", 1e6}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}}};
  const auto v = parse_with_unit(text, kUnits);
  if (!v || *v < 0 || *v >= 0x1p62) return std::nullopt;
  return std::llround(*v);
}

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes);
  size_t unit = 0;
  while (v >= 1024 && unit + 1 < kNames.size()) v /= 1024, ++unit;
  std::array<char, 32> buf{};
  std::snprintf(buf.data(), buf.size(), unit == 0 ? "%.0f %s" : "%.1f %s", v, kNames[unit]);
  return buf.data();
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out += kDigits[std::to_integer<size_t>(b) >> 4];
    out += kDigits[std::to_integer<size_t>(b) & 15];
  }
  return out;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned v = 0;
    const auto [end, ec] = std::from_chars(text.data() + i, text.data() + i + 2, v, 16);
    if (ec != std::errc{} || end != text.data() + i + 2) return std::nullopt;
    out += static_cast<char>(v);
  }
  return out;
}

int64_t monotonic_ns() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

int64_t unix_time_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string rfc3339_utc(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm tm{};
  gmtime_r(&seconds, &tm);
  std::array<char, 40> buf{};
  const size_t n = std::strftime(buf.data(), buf.size(), "%Y-%m-%dT%H:%M:%S", &tm);
  std::snprintf(buf.data() + n, buf.size() - n, ".%03dZ", static_cast<int>(unix_ms % 1000));
  return buf.data();
}

std::string now_rfc3339() { return rfc3339_utc(unix_time_ms()); }

}  // namespace dsf
