#pragma once
// The product of a tile on mma.sync, for devices without wgmma (exl3_wgmma.cuh is Hopper's): up to 4 * NB rows. Included by .cu files only.
//
// A thread block of 128 threads: warp w decodes the columns 32w..32w+31 for all rows, so a weight is decoded once per 4 * NB rows. Weights and
// activation image come through shared memory in stages of one 128-block of k (cp.async). Limit: the tensor core above about 40 rows, decoding below.
#include "tools/serve/backends/ops/exl3_gemm/exl3_image.cuh"

namespace dsf::serve::ops::exl3 {

__device__ inline void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline void copy16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void copies_done_but(bool one) {
  if (one) asm volatile("cp.async.wait_group 1;" ::: "memory");
  else asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// Quarter `Part` (half block u = Part / 2, tile t = Part % 2) of this warp's weights: A operands of four steps. stage: the warp's part of the block.
template <int K, int Part>
__device__ inline void decode_quarter(const uint4* stage, uint32_t (&a)[16], int lane) {
  constexpr int first = Part * K, last = first + K - 1;
  uint32_t w[K + 1];
#pragma unroll
  for (int c = first / 4; c <= last / 4; ++c) {
    const uint4 v = stage[c * 32 + lane];
    const uint32_t four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (4 * c + i >= first && 4 * c + i <= last) w[4 * c + i - first + 1] = four[i];
  }
  w[0] = __shfl_sync(0xffffffffu, w[K], (lane + 28) % 32);
  weight_pairs<K>(w, a);
}
template <int Part>
__device__ inline void decode_quarter(int bits, const uint4* stage, uint32_t (&a)[16], int lane) {
  switch (bits) {
    case 1: decode_quarter<1, Part>(stage, a, lane); break;
    case 2: decode_quarter<2, Part>(stage, a, lane); break;
    case 3: decode_quarter<3, Part>(stage, a, lane); break;
    case 4: decode_quarter<4, Part>(stage, a, lane); break;
    case 5: decode_quarter<5, Part>(stage, a, lane); break;
    case 6: decode_quarter<6, Part>(stage, a, lane); break;
    case 7: decode_quarter<7, Part>(stage, a, lane); break;
    default: decode_quarter<8, Part>(stage, a, lane); break;
  }
}

template <int NB>
__host__ __device__ constexpr int stage_bytes(int bits) {
  return 2048 * bits + NB * kGroupBytes;
}
template <int NB>
__host__ __device__ constexpr int result_bytes() {
  return 4 * NB * kTileStride * static_cast<int>(sizeof(float));
}

template <int NB>
__device__ inline void load_stage(const Tile& tile, int b, std::byte* stage) {
  const uint4* weights = tile.lanes + static_cast<int64_t>(b) * 128 * tile.bits;
  for (int i = static_cast<int>(threadIdx.x); i < 128 * tile.bits; i += kThreads) copy16(stage + 16 * i, weights + i);
  std::byte* image = stage + 2048 * tile.bits;
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_groups * (kGroupBytes / 16); i += kThreads) {
    const int group = i / (kGroupBytes / 16), at = i % (kGroupBytes / 16);
    copy16(image + 16 * i, tile.image + b * tile.image_step + group * kGroupWords + 4 * at);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int NB, int U>
__device__ inline void half_block(const Tile& tile, const uint4* weights, const uint32_t* image, float (&acc)[2][NB][4], int lane) {
  uint32_t a[2][16];
  decode_quarter<2 * U>(tile.bits, weights, a[0], lane);
  decode_quarter<2 * U + 1>(tile.bits, weights, a[1], lane);
  // Four groups at a time: eight products on accumulators of their own between two that add to the same one.
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
    for (int first = 0; first < NB; first += 4) {
      if (first >= tile.n_groups) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t* const step = image + first * kGroupWords + (4 * U + 2 * pair + half) * 64 + lane;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int t = 0; t < 2; ++t) {
            const uint32_t* w = a[t] + 8 * pair + 4 * half;
            mma_f16(acc[t][first + i], w[0], w[1], w[2], w[3], step[i * kGroupWords], step[i * kGroupWords + 32]);
          }
        }
      }
    }
  }
}

// result[row * kTileStride + column]: the rotated sums z of every row. stages: two of stage_bytes<NB>(bits). Ends behind a barrier.
template <int NB>
__device__ void tile_product(const Tile& tile, std::byte* stages, float* result) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
  const int bytes = stage_bytes<NB>(tile.bits);
  float sums[2][NB][2] = {};
  int chunk = 0, chunk_end = tile.kb / tile.chunks;
  float* const mine = result + q * kTileStride + warp * 32 + g;
  load_stage<NB>(tile, 0, stages);
  for (int b = 0; b < tile.kb; ++b) {
    const bool more = b + 1 < tile.kb;
    if (more) load_stage<NB>(tile, b + 1, stages + ((b + 1) & 1) * bytes);
    copies_done_but(more);
    __syncthreads();
    const std::byte* stage = stages + (b & 1) * bytes;
    const auto* weights = reinterpret_cast<const uint4*>(stage) + warp * tile.bits * 32;
    const auto* image = reinterpret_cast<const uint32_t*>(stage + 2048 * tile.bits);
    float acc[2][NB][4] = {};
    half_block<NB, 0>(tile, weights, image, acc, lane);
    half_block<NB, 1>(tile, weights, image, acc, lane);
    const bool last = b + 1 == chunk_end;
#pragma unroll
    for (int nb = 0; nb < NB; ++nb) {
      if (nb >= tile.n_groups) break;
      const float2 f = *reinterpret_cast<const float2*>(image + nb * kGroupWords + 512 + 2 * q);
#pragma unroll
      for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float low = __fadd_rn(acc[t][nb][2 * c + 1], f.x);
          const float z = fmaf(acc[t][nb][2 * c], 254.0f, low);
          sums[t][nb][c] = fmaf(z, f.y, sums[t][nb][c]);
          if (!last) continue;
          float* to = mine + 4 * nb * kTileStride + 16 * t + 8 * c;
          *to = __fadd_rn(chunk == 0 ? 0.0f : *to, sums[t][nb][c]);
          sums[t][nb][c] = 0;
        }
      }
    }
    if (last) ++chunk, chunk_end = (chunk + 1) * tile.kb / tile.chunks;
    __syncthreads();  // the stage may be filled again
  }
}

}  // namespace dsf::serve::ops::exl3
