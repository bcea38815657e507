#pragma once
// What the EXL3 decode kernels share: activation image, streaming loop over 128 x 128 blocks, Hadamard of 128. Included by .cu files only.
//
// A thread block of 128 threads works alone: it expands the activation image of its k range into shared memory once, then streams weight blocks of
// one or more columns through registers with no barrier. Four such blocks share an SM (128 registers a thread).
// Every (row, 128 inputs) has its own scale; the sums inside a block of 128 are exact integers, and the float sum over blocks has a fixed
// order, so a row's result depends on the row and the matrix shape alone: not on other rows, their number, or timing.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "tools/serve/backends/ops/common/launch.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_decode.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_mma.cuh"

namespace dsf::serve::ops::exl3 {

inline constexpr int kThreads = 128, kWarps = 4;
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

// Products that the compiler must not fuse into additions: other kernels (exl3_gemm) repeat them bit for bit.
__device__ inline float4 mul4(float4 a, float4 b) { return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w)); }

__device__ inline float4 add4(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Two bytes for one value: v = step * (254 hi + lo), |hi|, |lo| <= 127.
__device__ inline void split(float v, float inv, int& hi, int& lo) {
  const float s = __fmul_rn(v, inv);
  const float h = rintf(s);
  hi = static_cast<int>(h);
  lo = static_cast<int>(rintf((s - h) * 254.0f));
}

// 128 activations of one row, transformed and split: what a thread block expands into its image.
struct Prepared {
  uint32_t byte[32][2];  // lane l: high and residual bytes of k = 4l..4l+3
  RowScale scale;
};
// The same in registers; the scale is valid in every lane.
struct Split {
  uint2 byte;
  RowScale scale;
};

// One warp; v: the transformed values 4 * lane .. 4 * lane + 3.
__device__ inline Split split_row(float4 v) {
  const float amax = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
  const float top = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(amax)));
  const float inv = top > 0 ? __fdividef(127.0f, top) : 0.0f;
  const float value[4] = {v.x, v.y, v.z, v.w};
  int sum_hi = 0, sum_lo = 0;
  Split out{};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    int hi, lo;
    split(value[j], inv, hi, lo);
    sum_hi += hi, sum_lo += lo;
    out.byte.x |= static_cast<uint32_t>(hi & 0xff) << (8 * j), out.byte.y |= static_cast<uint32_t>(lo & 0xff) << (8 * j);
  }
  sum_hi = __reduce_add_sync(0xffffffffu, sum_hi);
  sum_lo = __reduce_add_sync(0xffffffffu, sum_lo);
  const float step = top * (1.0f / (127.0f * 254.0f));
  out.scale = RowScale{-kCentre * sum_hi, -kCentre * sum_lo, kValueShift * static_cast<float>(254 * sum_hi + sum_lo), step * kValueScale};
  return out;
}

__device__ inline void put_prepared(Prepared* to, const Split& row, int lane) {
  *reinterpret_cast<uint2*>(to->byte[lane]) = row.byte;
  if (lane == 0) to->scale = row.scale;
}

__device__ inline Split get_prepared(const Prepared* from, int lane) {
  Split out;
  out.byte = __ldcg(reinterpret_cast<const uint2*>(from->byte[lane]));
  *reinterpret_cast<float4*>(&out.scale) = __ldcg(reinterpret_cast<const float4*>(&from->scale));
  return out;
}

// H(x * suh) / sqrt(128) of four values a lane.
__device__ inline float4 to_rotated(float4 x, float4 suh, int lane) {
  const float4 v = hadamard128(mul4(x, suh), lane);
  return mul4(v, make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
}

// Row t of one image block. One warp.
template <int NB>
__device__ inline void expand(uint32_t* image, RowScale* scale, int t, const Split& row, int lane) {
  if (lane == 0) scale[t] = row.scale;
  const int q = (lane >> 2) & 3, u = lane >> 4;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const int step = (2 * (lane & 1) + j / 2) * 2 + ((lane >> 1) & 1);  // k = 4 * lane + j
    const int e = j * 0x1111, o = e + 0x1111;
    *reinterpret_cast<uint2*>(image + image_word<NB>(u, step, 2 * t, q)) = make_uint2(__byte_perm(row.byte.x, 0, e), __byte_perm(row.byte.x, 0, o));
    *reinterpret_cast<uint2*>(image + image_word<NB>(u, step, 2 * t + 1, q)) = make_uint2(__byte_perm(row.byte.y, 0, e), __byte_perm(row.byte.y, 0, o));
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

// The work of one thread block: k_count blocks of k from k_begin, of the columns [c_begin, c_end) of one matrix.
struct Item {
  const uint4* lanes;
  const Prepared* rows;  // [n_rows][kb], or nullptr: the block transforms x itself
  const float* x;        // [n_rows][in], row stride x_stride; used without rows
  const __half* suh;     // with x
  const int* row_index;  // which rows of x, or nullptr: 0, 1, ..
  int x_stride;
  float* z;              // [n_rows][out] of this chunk
  int n_rows, kb, out, k_begin, k_count, c_begin, c_end;
};

template <int NB>
__device__ void store_sums(const Item& it, int column, const Sums<NB>& sums) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const int row = 4 * nb + q;
    if (row >= it.n_rows) continue;
    float* z = it.z + static_cast<int64_t>(row) * it.out + column * 128 + warp * 32 + g;
#pragma unroll
    for (int t = 0; t < 2; ++t) z[16 * t] = sums.v[t][nb][0], z[16 * t + 8] = sums.v[t][nb][1];
  }
}

// Weights may be asked for before the kernel in front has ended (Early); everything else may not.
template <int K, int NB, bool Early>
__device__ void columns(const Item& it, uint32_t* image) {
  constexpr int kBlockVectors = kWarps * K * 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint4* block = it.lanes + (static_cast<int64_t>(it.c_begin) * it.kb + it.k_begin) * kBlockVectors + warp * K * 32;
  const int64_t column_step = static_cast<int64_t>(it.kb - it.k_count + 1) * kBlockVectors;
  RowScale* scale = reinterpret_cast<RowScale*>(image + it.k_count * NB * kImageWords);
  Stream<K> s;
  s.template fill_range<0, K>(block, lane);
  if constexpr (Early) wait_for_previous();
  for (int b = warp, row = 0;; b += kWarps) {
    while (b >= it.k_count) b -= it.k_count, ++row;
    if (row >= it.n_rows) break;
    const int k = (it.k_begin + b) * 128 + 4 * lane;
    const Split part = it.rows != nullptr
                           ? get_prepared(it.rows + row * it.kb + it.k_begin + b, lane)
                           : split_row(to_rotated(*reinterpret_cast<const float4*>(it.x + static_cast<int64_t>(it.row_index != nullptr ? it.row_index[row] : row) * it.x_stride + k), half4(it.suh, k), lane));
    expand<NB>(image + b * NB * kImageWords, scale + b * 4 * NB, row, part, lane);
  }
  __syncthreads();
  for (int column = it.c_begin; column < it.c_end; ++column) {
    Sums<NB> sums{};
    for (int b = 0; b < it.k_count; ++b) {
      const bool last = b + 1 == it.k_count;
      const uint4* next = block + (last ? column + 1 == it.c_end ? 0 : column_step : kBlockVectors);
      block_product<K, NB>(s, sums, image + b * NB * kImageWords, scale + b * 4 * NB, next, lane);
      block = next;
    }
    store_sums<NB>(it, column, sums);
  }
}

template <int NB, bool Early>
__device__ void run(int bits, const Item& it, uint32_t* image) {
  switch (bits) {
    case 1: columns<1, NB, Early>(it, image); break;
    case 2: columns<2, NB, Early>(it, image); break;
    case 3: columns<3, NB, Early>(it, image); break;
    case 4: columns<4, NB, Early>(it, image); break;
    case 5: columns<5, NB, Early>(it, image); break;
    case 6: columns<6, NB, Early>(it, image); break;
    case 7: columns<7, NB, Early>(it, image); break;
    default: columns<8, NB, Early>(it, image); break;
  }
}

// The sum of n partial sums `step` floats apart, four columns a lane, in their order, eight loads in flight.
__device__ inline float4 sum_parts(const float* z, int64_t step, int n, int lane) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int first = 0; first < n; first += 8) {
    float4 part[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      part[i] = first + i < n ? __ldcg(reinterpret_cast<const float4*>(z + (first + i) * step) + lane) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = add4(sum, part[i]);
  }
  return sum;
}

// z H / sqrt(128) * svh, four columns a lane.
__device__ inline float4 from_rotated(float4 z, const __half* svh, int column, int lane) {
  const float4 y = mul4(hadamard128(z, lane), half4(svh, column * 128 + 4 * lane));
  return mul4(y, make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
}

// silu(min(g, limit)) * clamp(u, -limit, limit) * weight. No fused addition, as in mul4.
__device__ inline float swiglu(float g, float u, float limit, float weight) {
  g = fminf(g, limit);
  u = fminf(fmaxf(u, -limit), limit);
  return g / __fadd_rn(1.0f, expf(-g)) * u * weight;
}
__device__ inline float4 swiglu4(float4 g, float4 u, float limit, float weight) {
  return make_float4(swiglu(g.x, u.x, limit, weight), swiglu(g.y, u.y, limit, weight), swiglu(g.z, u.z, limit, weight), swiglu(g.w, u.w, limit, weight));
}

// Counts this thread block in for each of its columns; is_last[c - c_begin]: it was the last of `expected`. The counter is zero again then.
__device__ inline void count_in(uint32_t* counters, uint32_t expected, int c_begin, int c_end, uint32_t* is_last) {
  __syncthreads();
  for (int c = c_begin + static_cast<int>(threadIdx.x); c < c_end; c += kThreads) {
    const bool last = count_one(counters + c) + 1 == expected;
    is_last[c - c_begin] = last ? 1 : 0;
    if (last) counters[c] = 0;
  }
  __syncthreads();
}

}  // namespace dsf::serve::ops::exl3
