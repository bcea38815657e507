#pragma once
// Device side helpers of the exchange kernels: memory of a region, waits, sums. Private to comm.
#include <cuda_bf16.h>

#include "peer_kernel.h"

namespace dsf::comm::peer {

// ---- memory that a peer writes

__device__ inline uint64_t load_acquire(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
// Orders what the block wrote before its last barrier, too.
__device__ inline void store_release(uint64_t* p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// Past L1. The two halves arrive whole, each for itself.
__device__ inline uint4 load_pack(const uint4* p) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ inline void store_pack(uint4* p, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// The place of this block's exchange with `source` in a region's arrays.
__device__ inline size_t line(const Args& a, uint32_t parity, int source) {
  return (static_cast<size_t>(parity) * static_cast<size_t>(a.world) + static_cast<size_t>(source)) * kMaxBlocks +
         blockIdx.x;
}
__device__ inline uint4* inbox(const Args& a, int owner, uint32_t parity, int source) {
  return reinterpret_cast<uint4*>(a.region[owner] + line(a, parity, source) * kChunkBytes);
}
__device__ inline uint64_t* flag(const Args& a, int owner, uint32_t parity, int source) {
  return reinterpret_cast<uint64_t*>(a.region[owner] + a.flags_offset + line(a, parity, source) * kFlagBytes);
}
__device__ inline uint4* small(const Args& a, int owner, uint32_t parity, int source) {
  return reinterpret_cast<uint4*>(a.region[owner] + a.small_offset +
                                  line(a, parity, source) * ((kSmallUnits + 1) * kPack));
}

// ---- faults

// Set by the first fault of this rank; nothing runs after it.
__device__ inline bool poisoned(const Args& a) {
  return *reinterpret_cast<volatile uint32_t*>(a.sequence + kMaxBlocks) != 0;
}

__device__ inline void give_up(const Args& a, Fault fault, int peer, uint32_t sequence, uint32_t seen_sequence,
                               uint32_t seen_signature) {
  if (atomicExch(a.sequence + kMaxBlocks, 1u) != 0) return;  // the first fault is the one that counts
  volatile HostState* host = a.host;
  host->peer = static_cast<uint32_t>(peer);
  host->sequence = sequence;
  host->seen_sequence = seen_sequence;
  host->seen_signature = seen_signature;
  host->signature = a.signature;
  __threadfence_system();
  host->fault = static_cast<uint32_t>(fault);
}

// Asked now and then by a wait; start_ns belongs to it and begins as 0. False when the wait is over.
__device__ inline bool go_on(const Args& a, int peer, uint32_t sequence, uint32_t seen_sequence, uint64_t& start_ns) {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (start_ns == 0) start_ns = now;
  if (poisoned(a)) return false;
  const bool late = now > start_ns && now - start_ns > a.timeout_ns;
  if (!late && *reinterpret_cast<volatile uint32_t*>(&a.host->abort) == 0) return true;
  give_up(a, late ? Fault::kTimeout : Fault::kAborted, peer, sequence, seen_sequence, 0);
  return false;
}

inline constexpr uint32_t kPollsBetweenLooks = 64;

// True once peer's flag of this exchange is up.
__device__ inline bool await(const Args& a, uint32_t parity, int peer, uint32_t sequence) {
  const uint64_t want = (static_cast<uint64_t>(a.signature) << 32) | sequence;
  const uint64_t* at = flag(a, a.rank, parity, peer);
  uint64_t start_ns = 0;
  for (uint32_t polls = 1;; ++polls) {
    const uint64_t seen = load_acquire(at);
    if (seen == want) return true;
    const auto seen_sequence = static_cast<uint32_t>(seen), seen_signature = static_cast<uint32_t>(seen >> 32);
    if (seen_signature != 0 && static_cast<int32_t>(seen_sequence - sequence) >= 0) {  // there, but not this
      give_up(a, Fault::kDivergence, peer, sequence, seen_sequence, seen_signature);
      return false;
    }
    if (polls % kPollsBetweenLooks == 0 && !go_on(a, peer, sequence, seen_sequence, start_ns)) return false;
  }
}

// True once the unit at `at` is of this exchange; v: its two words.
__device__ inline bool take(const Args& a, const uint4* at, int peer, uint32_t sequence, uint2& v) {
  uint64_t start_ns = 0;
  for (uint32_t polls = 1;; ++polls) {
    const uint4 seen = load_pack(at);
    v = {seen.x, seen.z};
    if (seen.y == sequence && seen.w == sequence) return true;
    if (polls % kPollsBetweenLooks == 0 && !go_on(a, peer, sequence, seen.y, start_ns)) return false;
  }
}

// ---- sums in f32, rounded once

template <Op kOp>
struct Sum;  // of one 32-bit word of every rank
template <>
struct Sum<Op::kSumF32> {
  float total;
  __device__ explicit Sum(uint32_t word) { total = __uint_as_float(word); }
  __device__ void add(uint32_t word) { total = __fadd_rn(total, __uint_as_float(word)); }
  __device__ uint32_t word() const { return __float_as_uint(total); }
};
template <>
struct Sum<Op::kSumBf16> {  // two values
  float low, high;
  __device__ explicit Sum(uint32_t word) {
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xffff0000u);
  }
  __device__ void add(uint32_t word) {
    low = __fadd_rn(low, __uint_as_float(word << 16));
    high = __fadd_rn(high, __uint_as_float(word & 0xffff0000u));
  }
  __device__ uint32_t word() const {
    const uint32_t upper = __bfloat16_as_ushort(__float2bfloat16_rn(high));
    return (upper << 16) | __bfloat16_as_ushort(__float2bfloat16_rn(low));
  }
};

}  // namespace dsf::comm::peer
