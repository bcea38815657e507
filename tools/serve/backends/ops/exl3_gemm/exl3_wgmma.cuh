#pragma once
// The product of a tile on Hopper's wgmma: 128 columns against up to 96 rows. Included by .cu files only; PTX of sm_90a lives here.
//
// Two warpgroups of four warps take 64 columns each: a warp decodes its 16 columns into the A operand (a weight is decoded once per 96 rows), B is the
// image in shared memory, columns 2t and 2t + 1 of a group's eight being the two bytes of row t. One thread of a third warpgroup brings weights and
// images by bulk copies into a ring of slots; consumers and producer meet at mbarriers only, so that one warpgroup's products hide the other's decoding. Integer sums, their
// conversion after every 128 inputs and the order of float sums are those of exl3_image.cuh. Limit: tensor core (two products a weight and row),
// with decoding and conversion close behind (docs/performance-exl3.md).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "wgmma: compile for 90a instead of 90"
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DSF_HAVE_WGMMA 1
#else
#define DSF_HAVE_WGMMA 0
#endif

#include "tools/serve/backends/ops/exl3_gemm/exl3_image.cuh"

namespace dsf::serve::ops::exl3 {

inline constexpr int kWideArch = 90;
inline constexpr int kWideGroups = 24, kWideRows = 4 * kWideGroups;  // of a tile
inline constexpr int kConsumers = 256, kWideThreads = kConsumers + 128;  // registers are dealt out by warpgroups
inline constexpr int kMaxSlots = 6, kBarrierBytes = 128;
inline constexpr int kWideImageBytes = kWideGroups * kGroupBytes;
inline constexpr int kWideResultBytes = kWideRows * kTileStride * static_cast<int>(sizeof(float));

inline int slot_bytes(int max_bits) { return kWideImageBytes + 2048 * max_bits; }
// Slots that fit beside `fixed` bytes; fewer than two: this kernel cannot run.
inline int slots_for(size_t smem_per_block, int fixed, int max_bits) {
  const int n = (static_cast<int>(smem_per_block) - kBarrierBytes - fixed) / slot_bytes(max_bits);
  return n < kMaxSlots ? n : kMaxSlots;
}

#if DSF_HAVE_WGMMA
__device__ inline void wgmma(float (&d)[96], const uint32_t* a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %101, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, "
      "%88, %89, %90, %91, %92, %93, %94, %95}, "
      "{%96, %97, %98, %99}, %100, p, 1, 1, 0; }\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}
__device__ inline void wgmma(float (&d)[64], const uint32_t* a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 0; }\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}
__device__ inline void wgmma(float (&d)[32], const uint32_t* a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0; }\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left>
__device__ inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory"); }

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline void barrier_init(uint64_t* b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory"); }
__device__ inline void barrier_arrive(uint64_t* b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(b)) : "memory"); }
__device__ inline void barrier_expect(uint64_t* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ inline void barrier_wait(uint64_t* b, uint32_t phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again; }\n" ::"r"(shared_address(b)), "r"(phase) : "memory");
}
// bytes: a multiple of 16, as are both addresses.
__device__ inline void bulk_copy(void* to, const void* from, int bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
               "r"(shared_address(b))
               : "memory");
}
// The producer's registers go to the consumers.
__device__ inline void become_producer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
__device__ inline void become_consumer() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }
// Among the consumers.
__device__ inline void consumers_meet() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

// The ring as one side sees it.
struct Ring {
  uint64_t *full, *empty;  // [n_slots]
  std::byte* slots;
  int slot_bytes, n_slots, slot;
  uint32_t phase;
  __device__ std::byte* at() const { return slots + slot * slot_bytes; }
  __device__ void next() {
    if (++slot == n_slots) slot = 0, phase ^= 1;
  }
};

// shared: kBarrierBytes, then the slots after `fixed` bytes. Every thread of the block calls it.
__device__ inline Ring make_ring(std::byte* shared, int fixed, int bytes, int n_slots) {
  auto* const barriers = reinterpret_cast<uint64_t*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < n_slots; ++i) barrier_init(barriers + i, 1), barrier_init(barriers + kMaxSlots + i, kConsumers / 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  return {barriers, barriers + kMaxSlots, shared + kBarrierBytes + fixed, bytes, n_slots, 0, 0};
}

// One thread of the producer.
__device__ inline void produce(Ring& ring, const Tile& tile) {
  const int image = tile.n_groups * kGroupBytes, weights = 2048 * tile.bits;
  for (int b = 0; b < tile.kb; ++b, ring.next()) {
    barrier_wait(ring.empty + ring.slot, ring.phase ^ 1);
    uint64_t* const full = ring.full + ring.slot;
    barrier_expect(full, image + weights);
    bulk_copy(ring.at(), tile.image + b * tile.image_step, image, full);
    bulk_copy(ring.at() + kWideImageBytes, tile.lanes + static_cast<int64_t>(b) * 128 * tile.bits, weights, full);
  }
}

// Columns 16 * warp + g and + 8 of the block in `slot`, half block U: A operands of four steps. tile: warp % 2.
template <int K, int U>
__device__ inline void decode_half(const std::byte* slot, int warp, int tile, int lane, uint32_t (&a)[16]) {
  const uint32_t* const mine = reinterpret_cast<const uint32_t*>(slot + kWideImageBytes) + (warp / 2) * (K * 128) + 4 * lane;
  const int first = (2 * U + tile) * K;
  uint32_t w[K + 1];
#pragma unroll
  for (int i = 0; i < K; ++i) w[i + 1] = mine[(first + i) / 4 * 128 + (first + i) % 4];
  w[0] = __shfl_sync(0xffffffffu, w[K], (lane + 28) % 32);
  weight_pairs<K>(w, a);
}

// Core matrices of 128 bytes: the two of a step beside each other, the groups kGroupBytes apart; no swizzle.
__device__ inline uint64_t image_descriptor(const void* image) {
  return static_cast<uint64_t>((shared_address(image) & 0x3ffff) >> 4) | uint64_t{128 >> 4} << 16 | uint64_t{kGroupBytes >> 4} << 32;
}

// Eight warps: result[row * kTileStride + column], the rotated sums z of 4 * Groups rows (those past n_groups: anything).
template <int K, int Groups>
__device__ __forceinline__ void wide_product(Ring& ring, const Tile& tile, float* result) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
  float acc[4 * Groups] = {}, sums[2 * Groups] = {};
  float* const mine = result + q * kTileStride + warp * 16 + g;
  int chunk = 0, chunk_end = tile.kb / tile.chunks, half = warp % 2;
  asm volatile("" : "+r"(half));  // else the addresses of every width are prepared at once, in registers that are not there
  uint32_t low[16], high[16];
  barrier_wait(ring.full + ring.slot, ring.phase);
  decode_half<K, 0>(ring.at(), warp, half, lane, low);
  for (int b = 0; b < tile.kb; ++b) {
    const std::byte* const slot = ring.at();
    uint64_t* const empty = ring.empty + ring.slot;
    const uint64_t image = image_descriptor(slot);
    wgmma_fence();
#pragma unroll
    for (int p = 0; p < 4; ++p) wgmma(acc, low + 4 * p, image + 16 * p, p != 0);
    wgmma_commit();
    decode_half<K, 1>(slot, warp, half, lane, high);
    wgmma_fence();
#pragma unroll
    for (int p = 0; p < 4; ++p) wgmma(acc, high + 4 * p, image + 16 * (4 + p), 1);
    wgmma_commit();
    // The next block's first half is decoded meanwhile; behind the last block it is this one's again, which needs no case of its own.
    Ring ahead = ring;
    ahead.next();
    const bool more = b + 1 < tile.kb;
    if (more) barrier_wait(ahead.full + ahead.slot, ahead.phase);
    wgmma_wait<1>();
    decode_half<K, 0>(more ? ahead.at() : slot, warp, half, lane, low);
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(low[i]));
    barrier_wait(ring.full + ring.slot, ring.phase);  // long over: keeps the compiler from decoding behind the next line
    ring = ahead;
    wgmma_wait<0>();
    const auto* const scale = reinterpret_cast<const float*>(slot) + 512 + 2 * q;
#pragma unroll
    for (int j = 0; j < Groups; ++j) {
      const float2 f = *reinterpret_cast<const float2*>(scale + j * kGroupWords);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float residual = __fadd_rn(acc[4 * j + 2 * c + 1], f.x);
        sums[2 * j + c] = fmaf(fmaf(acc[4 * j + 2 * c], 254.0f, residual), f.y, sums[2 * j + c]);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(empty);
    if (b + 1 < chunk_end) continue;
    // Chunks add up in the result tile, each value in the hands of one thread.
#pragma unroll
    for (int j = 0; j < Groups; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float* const to = mine + 4 * j * kTileStride + 8 * c;
        *to = __fadd_rn(chunk == 0 ? 0.0f : *to, sums[2 * j + c]);
        sums[2 * j + c] = 0;
      }
    ++chunk, chunk_end = (chunk + 1) * tile.kb / tile.chunks;
  }
}

template <int Groups>
__device__ __forceinline__ void wide_product(Ring& ring, const Tile& tile, float* result) {
  switch (tile.bits) {
    case 1: wide_product<1, Groups>(ring, tile, result); break;
    case 2: wide_product<2, Groups>(ring, tile, result); break;
    case 3: wide_product<3, Groups>(ring, tile, result); break;
    case 4: wide_product<4, Groups>(ring, tile, result); break;
    case 5: wide_product<5, Groups>(ring, tile, result); break;
    case 6: wide_product<6, Groups>(ring, tile, result); break;
    case 7: wide_product<7, Groups>(ring, tile, result); break;
    default: wide_product<8, Groups>(ring, tile, result); break;
  }
}

// Ends behind a barrier of the consumers: the result may be read. The caller puts another one behind its last read.
__device__ __forceinline__ void wide_product(Ring& ring, const Tile& tile, float* result) {
  if (tile.n_groups <= 8) wide_product<8>(ring, tile, result);
  else if (tile.n_groups <= 16) wide_product<16>(ring, tile, result);
  else wide_product<24>(ring, tile, result);
  consumers_meet();
}
#endif

}  // namespace dsf::serve::ops::exl3
