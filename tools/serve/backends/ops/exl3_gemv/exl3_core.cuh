#pragma once
// What the EXL3 decode kernels share: activation image, streaming loop over 128 x 128 blocks, Hadamard of 128. Included by .cu files only.
//
// A thread block is four teams of 128 threads, one block an SM (128 registers a thread). It makes the activation image of its k range in
// shared memory once; then every team streams 128 x 128 weight blocks through registers with no barrier.
// Every (row, 128 inputs) has its own scale; the sums inside a block of 128 are exact integers, and the float sum over blocks has a fixed
// order, so a row's result depends on the row and the matrix shape alone: not on other rows, their number, or timing.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "tools/serve/backends/ops/exl3_gemv/exl3_decode.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_mma.cuh"

namespace dsf::serve::ops::exl3 {

inline constexpr int kTeam = 128, kTeamWarps = 4, kTeams = 4, kThreads = kTeam * kTeams, kWarps = kTeamWarps * kTeams;
inline constexpr float kInvSqrt128 = 0.088388347648318447f;
inline constexpr float kValueScale = 1774.0f / 262144.0f;   // value = (1774 (S - 510) - 476) / 2^18
inline constexpr float kValueShift = -476.0f / 1774.0f;
inline constexpr int kCentre = 510;

// Of one row and 128 inputs: what the integer sums start from, and how they become a float.
struct RowScale {
  int start_hi, start_lo;  // -510 * sum of the bytes
  float shift;             // kValueShift * (254 * sum hi + sum lo)
  float scale;             // step of the residual * kValueScale
};

// Shared memory of an image of n_blocks blocks of k and 4 * NB rows: words first, then the scales.
template <int NB>
__host__ __device__ constexpr int image_bytes(int n_blocks) {
  return n_blocks * NB * (4 * kImageWords + 4 * static_cast<int>(sizeof(RowScale)));
}

// Natural-order Walsh-Hadamard of 128 values, four consecutive ones a lane, without the 1/sqrt(128). Source: exl3.md 1.2.
__device__ inline float4 hadamard128(float4 v, int lane) {
  const float a = v.x + v.y, b = v.x - v.y, c = v.z + v.w, d = v.z - v.w;
  v = make_float4(a + c, b + d, a - c, b - d);
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    const float sign = (lane & mask) != 0 ? -1.0f : 1.0f;
    v.x = fmaf(sign, v.x, __shfl_xor_sync(0xffffffffu, v.x, mask));
    v.y = fmaf(sign, v.y, __shfl_xor_sync(0xffffffffu, v.y, mask));
    v.z = fmaf(sign, v.z, __shfl_xor_sync(0xffffffffu, v.z, mask));
    v.w = fmaf(sign, v.w, __shfl_xor_sync(0xffffffffu, v.w, mask));
  }
  return v;
}

__device__ inline float4 half4(const __half* p, int i) {
  const uint2 u = *reinterpret_cast<const uint2*>(p + i);
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&u.x)), b = __half22float2(*reinterpret_cast<const __half2*>(&u.y));
  return make_float4(a.x, a.y, b.x, b.y);
}

__device__ inline float4 mul4(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

__device__ inline float4 add4(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Two bytes for one value: v = step * (254 hi + lo), |hi|, |lo| <= 127.
__device__ inline void split(float v, float inv, int& hi, int& lo) {
  const float s = v * inv;
  const float h = rintf(s);
  hi = static_cast<int>(h);
  lo = static_cast<int>(rintf((s - h) * 254.0f));
}

__device__ inline uint32_t splat(int byte) { return __byte_perm(static_cast<uint32_t>(byte), 0, 0); }

// Writes row `t` of image block `image` from four transformed values a lane. One warp.
template <int NB>
__device__ inline void put_row(uint32_t* image, RowScale* scale, int t, float4 v, int lane) {
  const float amax = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
  const float top = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(amax)));
  const float inv = top > 0 ? __fdividef(127.0f, top) : 0.0f;
  const float value[4] = {v.x, v.y, v.z, v.w};
  int sum_hi = 0, sum_lo = 0;
  const int q = (lane >> 2) & 3, u = lane >> 4;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    int hi[2], lo[2];
    split(value[j], inv, hi[0], lo[0]);
    split(value[j + 1], inv, hi[1], lo[1]);
    sum_hi += hi[0] + hi[1], sum_lo += lo[0] + lo[1];
    const int step = (2 * (lane & 1) + j / 2) * 2 + ((lane >> 1) & 1);  // k = 4 * lane + j
    *reinterpret_cast<uint2*>(image + image_word<NB>(u, step, 2 * t, q)) = make_uint2(splat(hi[0]), splat(hi[1]));
    *reinterpret_cast<uint2*>(image + image_word<NB>(u, step, 2 * t + 1, q)) = make_uint2(splat(lo[0]), splat(lo[1]));
  }
  sum_hi = __reduce_add_sync(0xffffffffu, sum_hi);
  sum_lo = __reduce_add_sync(0xffffffffu, sum_lo);
  if (lane == 0) {
    const float step = top * (1.0f / (127.0f * 254.0f));
    scale[t] = RowScale{-kCentre * sum_hi, -kCentre * sum_lo, kValueShift * static_cast<float>(254 * sum_hi + sum_lo), step * kValueScale};
  }
}

// The stream of one warp: 4K words a lane of the block in hand; chunks are refilled from the block after it as soon as they are used.
template <int K>
struct Stream {
  uint32_t w[4 * K];
  template <int Chunk>
  __device__ void fill(const uint4* block, int lane) {
    const uint4 v = load_weights(block + Chunk * 32 + lane);
    w[4 * Chunk] = v.x, w[4 * Chunk + 1] = v.y, w[4 * Chunk + 2] = v.z, w[4 * Chunk + 3] = v.w;
  }
  template <int From, int To>
  __device__ void fill_range(const uint4* block, int lane) {
    if constexpr (From < To) {
      fill<From>(block, lane);
      fill_range<From + 1, To>(block, lane);
    }
  }
};

// sums[t][nb][c]: tile t (columns 16t + g and 16t + g + 8 of the warp's 32), rows 4nb + q.
template <int NB>
struct Sums {
  float v[2][NB][2];
};

template <int K, int NB, int Part>
__device__ inline void quarter(Stream<K>& s, int (&acc)[2][NB][4], const uint32_t* image, const uint4* next, int lane) {
  if constexpr (Part < 4) {
    constexpr int u = Part / 2, t = Part % 2;
    uint32_t w[K + 1], x[32];
#pragma unroll
    for (int i = 0; i < K; ++i) w[i + 1] = s.w[Part * K + i];
    w[0] = __shfl_sync(0xffffffffu, w[K], (lane + 28) % 32);
    decode32<K>(w, x);
    s.template fill_range<Part * K / 4, (Part + 1) * K / 4>(next, lane);
    multiply<NB>(acc[t], x, image, u, lane);
    quarter<K, NB, Part + 1>(s, acc, image, next, lane);
  }
}

// One 128 x 128 block: sums += the block's product with its image. `next`: this warp's part of the block that comes after.
template <int K, int NB>
__device__ inline void block_product(Stream<K>& s, Sums<NB>& sums, const uint32_t* image, const RowScale* scale, const uint4* next, int lane) {
  int acc[2][NB][4];
  const int q = lane % 4;
#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const int2 start = *reinterpret_cast<const int2*>(&scale[4 * nb + q].start_hi);
#pragma unroll
    for (int t = 0; t < 2; ++t) acc[t][nb][0] = acc[t][nb][2] = start.x, acc[t][nb][1] = acc[t][nb][3] = start.y;
  }
  quarter<K, NB, 0>(s, acc, image, next, lane);
#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const float2 f = *reinterpret_cast<const float2*>(&scale[4 * nb + q].shift);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float low = __int2float_rn(acc[t][nb][2 * c + 1]) + f.x;
        const float z = fmaf(__int2float_rn(acc[t][nb][2 * c]), 254.0f, low);
        sums.v[t][nb][c] = fmaf(z, f.y, sums.v[t][nb][c]);
      }
    }
  }
}

}  // namespace dsf::serve::ops::exl3
