#include "dsf/exl3/decode.h"

#include <memory>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/tensor/dtype.h"

namespace dsf::exl3 {
namespace {

struct Tables {
  std::array<uint16_t, 65536> f16;
  std::array<float, 65536> f32;
};

std::unique_ptr<const Tables> make_tables(Codebook c) {
  auto tables = std::make_unique<Tables>();
  for (uint32_t s = 0; s < 65536; ++s) {
    tables->f16[s] = codebook_value(c, static_cast<uint16_t>(s));
    tables->f32[s] = tensor::f16_to_f32(tables->f16[s]);
  }
  return tables;
}

const Tables& tables(Codebook c) {
  static const std::array<std::unique_ptr<const Tables>, 3> all = {
      make_tables(Codebook::k3Inst), make_tables(Codebook::kMcg), make_tables(Codebook::kMul1)};
  return *all[static_cast<size_t>(c)];
}

// 3INST and MCG: the two halves of the masked product are fp16 values, added with one rounding.
uint16_t masked_sum(uint32_t x) {
  x = (x & 0x8FFF8FFFu) ^ 0x3B603B60u;
  // An fp16 sum is exact in f32, so this is one rounding.
  return tensor::f32_to_f16(tensor::f16_to_f32(static_cast<uint16_t>(x)) +
                            tensor::f16_to_f32(static_cast<uint16_t>(x >> 16)));
}

// MUL1: an affine function of the byte sum. The numerator is below 2^20, so the only rounding is the last.
uint16_t byte_sum(uint32_t x) {
  const auto sum = static_cast<int32_t>((x & 0xff) + ((x >> 8) & 0xff) + ((x >> 16) & 0xff) + (x >> 24));
  return tensor::f32_to_f16(static_cast<float>(1774 * sum - 905216) / 262144.0f);
}

// Word i of a tile: 32 stream bits, most significant first.
uint32_t stream_word(std::span<const std::byte> words, size_t i) { return load_le<uint32_t>(words.data() + 4 * i); }

}  // namespace

uint16_t codebook_value(Codebook c, uint16_t state) {
  switch (c) {
    case Codebook::k3Inst:
      return masked_sum(89226354u * state + 64248484u);
    case Codebook::kMcg:
      return masked_sum(kMcgMultiplier * state);
    case Codebook::kMul1:
      return byte_sum(kMul1Multiplier * state);
  }
  return 0;
}

std::span<const uint16_t, 65536> codebook_f16(Codebook c) { return tables(c).f16; }
std::span<const float, 65536> codebook_f32(Codebook c) { return tables(c).f32; }

TilePosition tile_position(int t) {
  const int lane = t >> 3, j = t & 7;
  return {static_cast<uint8_t>(2 * (lane & 3) + (j & 1) + 8 * ((j >> 1) & 1)),
          static_cast<uint8_t>((lane >> 2) + 8 * ((j >> 2) & 1))};
}

TileStates unpack_states(std::span<const std::byte> words, int half_bits) {
  const auto k2 = static_cast<size_t>(half_bits);
  DSF_CHECK(half_bits >= 1 && half_bits <= 2 * kMaxBits && words.size() == 16 * k2, "tile size and width disagree");
  const size_t n_words = 4 * k2, n_bits = 128 * k2;
  TileStates states;
  for (size_t t = 0; t < 256; ++t) {
    // Even values end half a pair early; for integer widths this is (t + 1) * bits.
    const size_t end = (t >> 1) * k2 + (t % 2 == 1 ? k2 : k2 >> 1);
    const size_t begin = end + n_bits - 16;  // one turn ahead, so that it never goes below zero
    const uint64_t high = stream_word(words, begin / 32 % n_words);
    const uint64_t low = stream_word(words, (begin / 32 + 1) % n_words);
    states[t] = static_cast<uint16_t>((high << 32 | low) >> (48 - begin % 32));
  }
  return states;
}

void pack_states(const TileStates& states, int bits, std::span<std::byte> words) {
  DSF_CHECK(bits >= 1 && bits <= kMaxBits && words.size() == 32 * static_cast<size_t>(bits),
            "tile size and width disagree");
  const uint32_t mask = (1u << bits) - 1;
  uint64_t window = 0;
  int filled = 0;
  size_t word = 0;
  for (size_t t = 0; t < 256; ++t) {
    const uint32_t low_part = states[t] & ((1u << (16 - bits)) - 1);
    DSF_CHECK(uint32_t{states[(t + 1) % 256]} >> bits == low_part, "states do not form a closed path");
    window = window << bits | (states[t] & mask);
    filled += bits;
    if (filled >= 32) {
      filled -= 32;
      store_le(words.data() + 4 * word++, static_cast<uint32_t>(window >> filled));
    }
  }
}

void decode_inner(const PackedMatrix& m, std::span<uint16_t> inner) {
  DSF_CHECK(inner.size() == static_cast<size_t>(m.in * m.out), "buffer is not [in, out]");
  const auto values = codebook_f16(m.codebook);
  for (int64_t kt = 0; kt < m.in / kTile; ++kt) {
    for (int64_t nt = 0; nt < m.out / kTile; ++nt) {
      const TileStates states = unpack_states(m.tile(kt, nt), 2 * m.bits);
      for (int t = 0; t < 256; ++t) {
        const TilePosition at = tile_position(t);
        inner[static_cast<size_t>((kt * kTile + at.row) * m.out + nt * kTile + at.col)] =
            values[states[static_cast<size_t>(t)]];
      }
    }
  }
}

}  // namespace dsf::exl3
