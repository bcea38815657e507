#include <array>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace dsf::codec {
namespace {

// Castagnoli polynomial, reflected.
constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0);
    t[i] = c;
  }
  return t;
}
constexpr auto kTable = make_table();

uint32_t by_table(uint32_t c, std::span<const std::byte> data) {
  for (const std::byte b : data) c = (c >> 8) ^ kTable[(c ^ std::to_integer<uint32_t>(b)) & 0xff];
  return c;
}

// Eight bytes a step with the processor's instruction; the tail by table.
#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t c, std::span<const std::byte> data) {
  uint64_t wide = c;
  for (; data.size() >= 8; data = data.subspan(8)) wide = _mm_crc32_u64(wide, load_le<uint64_t>(data.data()));
  return by_table(static_cast<uint32_t>(wide), data);
}
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
__attribute__((target("+crc"))) uint32_t by_instruction(uint32_t c, std::span<const std::byte> data) {
  for (; data.size() >= 8; data = data.subspan(8)) c = __crc32cd(c, load_le<uint64_t>(data.data()));
  return by_table(c, data);
}
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
uint32_t by_instruction(uint32_t c, std::span<const std::byte> data) { return by_table(c, data); }
bool has_instruction() { return false; }
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> data, uint32_t seed) {
  static const bool fast = has_instruction();
  return ~(fast ? by_instruction(~seed, data) : by_table(~seed, data));
}

}  // namespace dsf::codec
