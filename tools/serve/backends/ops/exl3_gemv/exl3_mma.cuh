#pragma once
// The multiply step, twice: mma.sync for every chip, wgmma where the file is compiled for sm_90a. PTX of the EXL3 kernels lives here.
//
// One step multiplies 16 columns per warp (weights, A operand) by 8 weights of k for 8 * NB activation columns (B operand). A weight is
// the four bytes of its product x = s * M, each activation byte stands four times, so the tensor core sums the bytes: acc = sum a8 * S.
// Activation columns: 2t holds the high part of row t, 2t + 1 its residual. Source: exl3.md 8.7 proposal A, 8.8.
#include <cstdint>

namespace dsf::serve::ops::exl3 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kWarpgroupMma = true;
#else
inline constexpr bool kWarpgroupMma = false;
#endif

// Word of the activation image that holds row column `n` of step `s`, half `b` (even or odd k), thread-in-quad `q`, half block `u`.
// One half block takes 8 steps * NB * 64 words.
template <int NB>
__device__ inline int image_word(int u, int s, int b, int n, int q) {
  if constexpr (kWarpgroupMma) return ((u * 8 + s) * NB + n / 8) * 64 + b * 32 + (n % 8) * 4 + q;  // core matrices of 8 rows x 16 bytes
  return ((u * 4 + s / 2) * NB + n / 8) * 128 + ((n % 8) * 4 + q) * 4 + (s & 1) * 2 + b;           // 16 bytes per lane and two steps
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void multiply_begin() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void multiply_end() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

// No swizzle; 128 bytes between the two k halves, 256 bytes between groups of 8 rows.
__device__ inline uint64_t image_descriptor(const void* image) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(image));
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (uint64_t{128 >> 4} << 16) | (uint64_t{256 >> 4} << 32);
}

__device__ inline void wgmma8(int (&d)[1][4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1;\n"
               : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[0][2]), "+r"(d[0][3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
__device__ inline void wgmma8(int (&d)[2][4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k32.s32.u8.s8 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, 1;\n"
               : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[0][2]), "+r"(d[0][3]), "+r"(d[1][0]), "+r"(d[1][1]), "+r"(d[1][2]), "+r"(d[1][3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

// Half block u of one tile: 8 steps.
template <int NB>
__device__ inline void multiply(int (&acc)[NB][4], const uint32_t (&x)[32], const uint32_t* image, int u, int /*lane*/) {
  const uint64_t d = image_descriptor(image + u * 8 * NB * 64);
  multiply_begin();
#pragma unroll
  for (int s = 0; s < 8; ++s)
    wgmma8(acc, x[a_register(s, 0)], x[a_register(s, 1)], x[a_register(s, 2)], x[a_register(s, 3)], d + s * NB * (256 >> 4));
  multiply_end();
}

#else

__device__ inline void mma_u8s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

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

#endif

}  // namespace dsf::serve::ops::exl3
