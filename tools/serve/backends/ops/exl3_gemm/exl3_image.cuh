#pragma once
// What the many-row kernels share: the image of the activations, a weight's fp16 value, the tile of a product. Included by .cu files only.
//
// The arithmetic is exl3_gemv's, step by step, so that a row has the same bits there and here: activations are two signed bytes and a scale per
// 128 inputs, the sums inside a block of 128 are exact integers, and the float sums over blocks and chunks have the same order. What differs is
// how the integers are added: a weight is the fp16 value of its byte sum S - 510 (exact), an activation the fp16 values of its two bytes (exact),
// and every partial sum of a block stays below 127 * 510 * 128 < 2^23, so that the tensor core's f32 additions are exact, too.
#include "tools/serve/backends/ops/exl3_gemv/exl3_core.cuh"

namespace dsf::serve::ops::exl3 {

// Image of four rows (a group) and 128 inputs: fp16 pairs [step s = 4u + p][half h][n][q], then (shift, scale) of each row. n: 2t the high byte of
// row t, 2t + 1 its residual; the pair holds k = 64u + 16q + 2p + 8h and the next. So the eight 16-byte rows n of (s, h) are a core matrix of
// wgmma, and of one step (h, n, q) is the B operand of mma.sync. Order of groups: [k block][group].
inline constexpr int kGroupWords = 512 + 8;
inline constexpr int kGroupBytes = 4 * kGroupWords;
inline constexpr int kTileStride = 132;  // floats a row of the result tile: a multiple of four, not of the banks

__device__ inline uint32_t half_pair(uint32_t bytes, int first) {  // signed bytes `first`, `first + 1` of a word as fp16
  const int a = static_cast<int8_t>(bytes >> (8 * first)), b = static_cast<int8_t>(bytes >> (8 * first + 8));
  const __half2 h = __floats2half2_rn(static_cast<float>(a), static_cast<float>(b));
  return *reinterpret_cast<const uint32_t*>(&h);
}

// Between this lane and lane ^ mask: the upper one gives its `low` for the lower one's `high`.
__device__ inline void trade(uint32_t& low, uint32_t& high, int upper, int mask) {
  const uint32_t other = __shfl_xor_sync(0xffffffffu, upper != 0 ? low : high, mask);
  (upper != 0 ? low : high) = other;
}

// Row t (0..3) of a group, 128 inputs. One warp; lane l holds k = 4l..4l+3.
__device__ inline void put_image(uint32_t* group, int t, const Split& row, int lane) {
  const int u = lane >> 4, q = (lane >> 2) & 3, h = (lane >> 1) & 1, s = 4 * u + 2 * (lane & 1);
  // Pairs of (step s, high), (s, residual), (s + 1, high), (s + 1, residual); the four lanes of q trade them, so that each stores 16 bytes.
  uint4 v = make_uint4(half_pair(row.byte.x, 0), half_pair(row.byte.y, 0), half_pair(row.byte.x, 2), half_pair(row.byte.y, 2));
  trade(v.x, v.y, q & 1, 4), trade(v.z, v.w, q & 1, 4);
  trade(v.x, v.z, q & 2, 8), trade(v.y, v.w, q & 2, 8);
  *reinterpret_cast<uint4*>(group + (((s + q / 2) * 2 + h) * 8 + 2 * t + q % 2) * 4) = v;
  if (lane == 0) *reinterpret_cast<float2*>(group + 512 + 2 * t) = make_float2(row.scale.shift, row.scale.scale);
}

// 1024 + S of value I as fp16 bits.
template <int K, int I>
__device__ inline uint32_t biased_sum(const uint32_t (&w)[K + 1]) {
  return static_cast<uint32_t>(__dp4a(state_of<K, I>(w) * kMul1, 0x01010101u, 0x6400u));
}
template <int K, int I>
__device__ inline uint32_t weight_pair(const uint32_t (&w)[K + 1]) {
  const uint32_t two = __byte_perm(biased_sum<K, I>(w), biased_sum<K, I + 1>(w), 0x5410);
  const __half2 centre = __floats2half2_rn(-1024.0f - kCentre, -1024.0f - kCentre);
  const __half2 v = __hadd2(*reinterpret_cast<const __half2*>(&two), centre);
  return *reinterpret_cast<const uint32_t*>(&v);
}
// A operands of the four steps p of a half block, for the columns g and g + 8.
template <int K, int P = 0>
__device__ inline void weight_pairs(const uint32_t (&w)[K + 1], uint32_t (&a)[16]) {
  if constexpr (P < 4) {
    a[4 * P] = weight_pair<K, 8 * P>(w), a[4 * P + 1] = weight_pair<K, 8 * P + 4>(w);
    a[4 * P + 2] = weight_pair<K, 8 * P + 2>(w), a[4 * P + 3] = weight_pair<K, 8 * P + 6>(w);
    weight_pairs<K, P + 1>(w, a);
  }
}

// One column block of 128 of a matrix against n_groups groups of four rows.
struct Tile {
  const uint4* lanes;     // of the column block: kb blocks
  const uint32_t* image;  // of the first group in the first block of k
  int64_t image_step;     // words from a block of k to the next: all groups
  int bits, kb, chunks, n_groups;
};

}  // namespace dsf::serve::ops::exl3
