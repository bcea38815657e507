// Dense linear with bf16 or fp16 weights on the tensor core, as exact as f32: both fit tf32, and an f32 activation is the exact sum of three tf32
// values. A thread block of 16 warps takes 16 outputs and up to 8 * Tiles rows; the warps share the input, each adds its pieces of 32 in order, and
// their sums are added in the order of the warps: the order depends on the input width alone. Limit: weight bandwidth for few rows.
#include <cuda_fp16.h>

#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * kWarp;
constexpr int kOuts = 16, kPiece = 32;
constexpr int kBatch = 5;  // pieces whose weights are asked for at once

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Eight weights as the bits of f32 values.
template <bool Half>
__device__ inline void unpack(uint4 packed, uint32_t (&w)[8]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Half) {
      const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      w[2 * i] = __float_as_uint(f.x), w[2 * i + 1] = __float_as_uint(f.y);
    } else {
      w[2 * i] = words[i] << 16, w[2 * i + 1] = words[i] & 0xffff0000u;
    }
  }
}

// The upper 11 significant bits of v, which tf32 holds; v keeps the rest.
__device__ inline uint32_t take_tf32(float& v) {
  const uint32_t top = __float_as_uint(v) & 0xffffe000u;
  v -= __uint_as_float(top);
  return top;
}

// Lane 4g + q holds the inputs 8q .. 8q + 7 of a piece, of the outputs g and g + 8 and of row g: the step over inputs 2j, 2j + 1 of every lane is
// one k8 product.
// Eight inputs of a row, zeros outside.
__device__ inline void load_inputs(const LinearArgs& a, int64_t row, int64_t k, float (&x)[8]) {
  float4 v = make_float4(0, 0, 0, 0), w = v;
  if (k < a.in && row < a.n_rows) {
    const float4* from = reinterpret_cast<const float4*>(a.x + row * a.x_stride + k);
    v = from[0], w = from[1];
  }
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w, x[4] = w.x, x[5] = w.y, x[6] = w.z, x[7] = w.w;
}

template <int Tiles, bool Half>
__global__ void __launch_bounds__(kThreads) linear_mma_kernel(LinearArgs a, const uint16_t* weight, LinearGroups groups) {
  a.x += blockIdx.z * groups.x_step;
  a.y += blockIdx.z * groups.y_step;
  weight += blockIdx.z * a.out * a.in;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, q = lane % 4;
  const int64_t out0 = int64_t{blockIdx.x} * kOuts, row0 = int64_t{blockIdx.y} * 8 * Tiles;
  const uint16_t* const w0 = weight + min(out0 + g, a.out - 1) * a.in;
  const uint16_t* const w1 = weight + min(out0 + g + 8, a.out - 1) * a.in;
  float acc[Tiles][4] = {};
  const int64_t n_pieces = (a.in + kPiece - 1) / kPiece, begin = warp * n_pieces / kWarps, end = (warp + 1) * n_pieces / kWarps;
  const uint4 zero = make_uint4(0, 0, 0, 0);
  release_next();
  for (int64_t batch = begin; batch < end; batch += kBatch) {
    uint4 first[kBatch], second[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t k = (batch + i) * kPiece + 8 * q;
      const bool inside = batch + i < end && k < a.in;
      first[i] = inside ? __ldg(reinterpret_cast<const uint4*>(w0 + k)) : zero;
      second[i] = inside ? __ldg(reinterpret_cast<const uint4*>(w1 + k)) : zero;
    }
    if (batch == begin) wait_for_previous();  // weights are constant data
    float ahead[Tiles == 1 ? kBatch : 1][8];  // few rows: all inputs of the batch at once
    if constexpr (Tiles == 1) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) load_inputs(a, row0 + g, batch + i < end ? (batch + i) * kPiece + 8 * q : a.in, ahead[i]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (batch + i >= end) break;
      const int64_t k = (batch + i) * kPiece + 8 * q;
      uint32_t low[8], high[8];
      unpack<Half>(first[i], low);
      unpack<Half>(second[i], high);
#pragma unroll
      for (int t = 0; t < Tiles; ++t) {
        if (row0 + 8 * t >= a.n_rows) break;
        float x[8];
        if constexpr (Tiles == 1) {
#pragma unroll
          for (int j = 0; j < 8; ++j) x[j] = ahead[i][j];
        } else {
          load_inputs(a, row0 + 8 * t + g, k, x);
        }
        float sums[3][4] = {};  // of the three parts: the tensor core's additions truncate, so only four of them in a row
#pragma unroll
        for (int part = 0; part < 3; ++part) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const uint32_t w[4] = {low[2 * j], high[2 * j], low[2 * j + 1], high[2 * j + 1]};
            const uint32_t b0 = take_tf32(x[2 * j]), b1 = take_tf32(x[2 * j + 1]);
            mma_tf32(sums[part], w, b0, b1);
          }
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) acc[t][c] += sums[0][c] + (sums[1][c] + sums[2][c]);
      }
    }
  }
  wait_for_previous();  // a warp without pieces, too
  // acc[t]: (output g, rows 2q and 2q + 1), (output g + 8, the same rows).
  __shared__ float part[kWarps][Tiles][8][kOuts + 1];
#pragma unroll
  for (int t = 0; t < Tiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) part[warp][t][2 * q + i % 2][g + i / 2 * 8] = acc[t][i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Tiles * 8 * kOuts; i += kThreads) {
    const int64_t row = row0 + i / kOuts, out = out0 + i % kOuts;
    if (row >= a.n_rows || out >= a.out) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += part[w][i / kOuts / 8][i / kOuts % 8][i % kOuts];
    a.y[row * a.y_stride + out] = sum;
  }
}

template <bool Half>
Result<void> launch_form(const LinearArgs& a, const uint16_t* weight, CudaStream stream, const LinearGroups& groups) {
  const unsigned outs = grid_of(a.out, kOuts), count = static_cast<unsigned>(groups.count);
  if (a.n_rows <= 8) {
    return launch_after(linear_mma_kernel<1, Half>, stream, dim3(outs, 1, count), kThreads, 0, a, weight, groups);
  } else {
    return launch_after(linear_mma_kernel<4, Half>, stream, dim3(outs, grid_of(a.n_rows, 32), count), kThreads, 0, a, weight, groups);
  }
}

}  // namespace

Result<void> linear_mma_cuda(const LinearArgs& a, const HalfWeights& w, CudaStream stream, const LinearGroups& groups) {
  return w.f16 != nullptr ? launch_form<true>(a, w.f16, stream, groups) : launch_form<false>(a, w.bf16, stream, groups);
}

}  // namespace dsf::serve::ops
