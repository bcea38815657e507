#pragma once
// From the lanes layout to products s * M: the 32 windows that one lane decodes at a time. Included by .cu files only.
//
// Lanes layout of one 128 x 128 block (in x out) of a K-bit matrix, 2048 * K bytes, blocks ordered [out/128][in/128]:
//
//   [warp 0..3][chunk 0..K-1][lane 0..31] of 16 bytes
//
// Warp w owns the columns 32w..32w+31 (two tiles of 16). Lane l = 4g + q owns, in each tile, the columns g and g + 8 of the k-tile q of
// each half block of 64 rows: the 32 consecutive values 32g..32g+31 of that tile, which are exactly K whole words of it. Its 4K words are
// ordered [half block u][tile t][K words]. So the repack moves whole 32-bit words, and the 16 bits before a lane's first value stand
// at the end of the words of lane l - 4 (mod 32), the tail-biting wrap included: one shuffle for 32 values.
// Source: exl3.md 3 (trellis), 8.6-8.8 (what bounds decoding); the word-aligned ownership and the extraction below are this project's.
#include <cstdint>

namespace dsf::serve::ops::exl3 {

inline constexpr uint32_t kMul1 = 0x83DCD12Du;

// Value i (0..31) of a lane ends at bit (i + 1) * K of its words, so its window starts at bit (i + 1) * K + 16 of prefix and words.
template <int K, int I>
struct Window {
  static constexpr int kStart = (I + 1) * K + 16;
  static constexpr int kWord = kStart / 32;
  static constexpr int kBit = kStart % 32;             // from the top of words[kWord]
  static constexpr bool kInside = kBit <= 16;          // not across two words
  static constexpr int kShift = kInside ? 16 - kBit : 48 - kBit;  // right shift that brings it down
  static constexpr bool kByte = kBit % 8 == 0;
};

// Zero-extended 16 bits starting `Bit` (0, 8, 16) from the top of v: one permute.
template <int Bit>
__device__ inline uint32_t bytes16(uint32_t v) {
  return __byte_perm(v, 0, Bit == 0 ? 0x4432 : Bit == 8 ? 0x4421 : 0x4410);
}

// The state (16 bits) of value I. Shifts and permutes share one pipe of 64 lanes a clock, multiplies have another: K = 3, 5, 6, 7 spread their
// extractions over both; K = 1, 2, 4 reuse one funnel shift for three windows that lie 8 bits apart.
template <int K, int I>
__device__ inline uint32_t state_of(const uint32_t (&w)[K + 1]) {
  using W = Window<K, I>;
  constexpr int next = W::kWord < K ? W::kWord + 1 : K;
  if constexpr (W::kByte && W::kInside) {
    return bytes16<W::kBit>(w[W::kWord]);
  } else if constexpr (W::kByte) {  // bit 24: across the words
    return bytes16<8>(__byte_perm(w[next], w[W::kWord], 0x5432));
  } else if constexpr (8 % K == 0) {
    constexpr int phase = W::kStart % 8;
    constexpr int base = (W::kStart - phase) / 24 * 24 + phase;  // containers of 32 bits every 24 bits
    constexpr int bw = base / 32, bb = base % 32;
    const uint32_t container = __funnelshift_l(w[bw < K ? bw + 1 : K], w[bw], bb);
    return bytes16<W::kStart - base>(container);
  } else if constexpr (!W::kInside) {
    return __funnelshift_r(w[next], w[W::kWord], W::kShift) & 0xffffu;
  } else {
    return bytes16<0>(w[W::kWord] << W::kBit);  // the shift is a multiply to the compiler
  }
}

template <int K, int I = 0>
__device__ inline void decode32(const uint32_t (&w)[K + 1], uint32_t (&x)[32]) {
  if constexpr (I < 32) {
    x[I] = state_of<K, I>(w) * kMul1;
    decode32<K, I + 1>(w, x);
  }
}

// Values of a lane are numbered as in the stream: i = 8p + j, and k = 16q + 2p + (j & 1) + 8 (j >> 1 & 1) in the half block, column
// g + 8 (j >> 2). Multiply step s = 2p + h takes j = 2h, 2h + 1 of both columns: A registers (row g, k even), (row g + 8, k even), (g, odd),
// (g + 8, odd).
__host__ __device__ constexpr int a_register(int step, int r) {
  const int p = step >> 1, h = step & 1;
  return 8 * p + 4 * (r & 1) + 2 * h + (r >> 1);
}

}  // namespace dsf::serve::ops::exl3
