#include <array>

#include "dsf/codec/sha256.h"

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
}  // namespace

uint32_t crc32c(std::span<const std::byte> data, uint32_t seed) {
  uint32_t c = ~seed;
  for (std::byte b : data) c = (c >> 8) ^ kTable[(c ^ std::to_integer<uint32_t>(b)) & 0xff];
  return ~c;
}

}  // namespace dsf::codec
