#pragma once
// The multiply step. PTX of the EXL3 kernels lives here.
//
// One step multiplies 16 columns per warp (weights, A operand) by 8 weights of k for 8 * NB activation columns (B operand). A weight is
// the four bytes of its product x = s * M, each activation byte stands four times, so the tensor core sums the bytes: acc = sum a8 * S.
// Activation columns: 2t holds the high part of row t, 2t + 1 its residual. Source: exl3.md 8.7 proposal A, 8.8.
// wgmma (A from registers, one group in flight) was measured slower on H200: docs/performance-exl3.md.
#include <cstdint>

#include "tools/serve/backends/ops/exl3_gemv/exl3_decode.cuh"

namespace dsf::serve::ops::exl3 {

inline constexpr int kImageWords = 1024;  // of one 128-row block and 8 activation columns; a half block is half of it

// Word of the image that holds activation column `n` of step `s`, thread-in-quad `q`, half block `u`, even k; odd k is the next word.
template <int NB>
__device__ inline int image_word(int u, int s, int n, int q) {
  return ((u * 4 + s / 2) * NB + n / 8) * 128 + ((n % 8) * 4 + q) * 4 + (s & 1) * 2;
}

__device__ inline void mma_u8s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Half block u of one tile: 8 steps.
template <int NB>
__device__ inline void multiply(int (&acc)[NB][4], const uint32_t (&x)[32], const uint32_t* image, int u, int lane) {
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb) {
      const uint4 b = *reinterpret_cast<const uint4*>(image + ((u * 4 + pair) * NB + nb) * 128 + lane * 4);
      const int s = 2 * pair;
      mma_u8s8(acc[nb], x[a_register(s, 0)], x[a_register(s, 1)], x[a_register(s, 2)], x[a_register(s, 3)], b.x, b.y);
      mma_u8s8(acc[nb], x[a_register(s + 1, 0)], x[a_register(s + 1, 1)], x[a_register(s + 1, 2)], x[a_register(s + 1, 3)], b.z, b.w);
    }
  }
}

// Global load of weights: read once, not kept in L1.
__device__ inline uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// Adds 1 and returns the value before; everything the block wrote before its last barrier is visible to whoever sees the sum.
__device__ inline uint32_t count_one(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

}  // namespace dsf::serve::ops::exl3
