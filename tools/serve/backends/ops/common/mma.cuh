#pragma once
// Tensor core tiles and byte permutes as functions. Included by .cu files only; every PTX instruction of the plain ops
// is here.
//
// Lane l of a warp holds, with g = l / 4 and t = l % 4:
//   A [16, k]   rows g and g + 8          B [k, 8]   column g          C [16, 8]   c0 c1: row g, columns 2t 2t+1; c2
//   c3: row g + 8
// Source: PTX ISA, warp-level matrix fragments.
#include <cstdint>

namespace dsf::serve::ops {

// d = start + a * b, k = 32 signed bytes. a: row g bytes 4t.., row g+8 bytes 4t.., row g bytes 16+4t.., row g+8 bytes
// 16+4t..; b: bytes 4t.. and 16+4t..
__device__ inline void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t start) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}

// c += a * b, k = 16 bf16 in pairs, the lower index in the lower half. a: row g pair t, row g+8 pair t, row g pair 4+t,
// row g+8 pair 4+t.
__device__ inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 tiles of 16-bit values in shared memory, transposed: lane l names row l % 8 of tile l / 8 (16 bytes); r[i]
// holds of tile i the values [row 2t][column g] (low half) and [row 2t + 1][column g].
__device__ inline void load_tiles_transposed(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, not transposed: r[i] holds of tile i the values [row g][columns 2t and 2t + 1].
__device__ inline void load_tiles(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Byte i of the result is byte (selector nibble i) & 7 of b:a; with the nibble's top bit, that byte's sign eight times.
__device__ inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

}  // namespace dsf::serve::ops
