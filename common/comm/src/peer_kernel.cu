// Exchange in one launch. Grid: up to 64 blocks of 256 threads, each with an equal run of 16-byte packs; runs longer
// than a chunk are exchanged chunk by chunk. Bytes moved per call and rank: n to each peer over the link, n * world
// read here. Limit: the latency of one write and one flag over the link at decode sizes, the link's bandwidth above.
#include <cuda_bf16.h>

#include <algorithm>

#include "peer_kernel.h"

namespace dsf::comm::peer {
namespace {

constexpr int64_t kChunkPacks = kChunkBytes / kPack;

__device__ uint64_t load_acquire(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ void store_release(uint64_t* p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// Past L1: a peer wrote it.
__device__ uint4 load_pack(const uint4* p) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__device__ size_t line(const Args& a, uint32_t parity, int source) {
  return (static_cast<size_t>(parity) * static_cast<size_t>(a.world) + static_cast<size_t>(source)) * kMaxBlocks +
         blockIdx.x;
}
__device__ uint4* inbox(const Args& a, int owner, uint32_t parity, int source) {
  return reinterpret_cast<uint4*>(a.region[owner] + line(a, parity, source) * kChunkBytes);
}
__device__ uint64_t* flag(const Args& a, int owner, uint32_t parity, int source) {
  return reinterpret_cast<uint64_t*>(a.region[owner] + a.flags_offset + line(a, parity, source) * kFlagBytes);
}

// Set by the first fault of this rank; nothing runs after it.
__device__ bool poisoned(const Args& a) { return *reinterpret_cast<volatile uint32_t*>(a.sequence + kMaxBlocks) != 0; }

__device__ void give_up(const Args& a, Fault fault, int peer, uint32_t sequence, uint64_t seen) {
  if (atomicExch(a.sequence + kMaxBlocks, 1u) != 0) return;  // the first fault is the one that counts
  volatile HostState* host = a.host;
  host->peer = static_cast<uint32_t>(peer);
  host->sequence = sequence;
  host->seen_sequence = static_cast<uint32_t>(seen);
  host->seen_signature = static_cast<uint32_t>(seen >> 32);
  host->signature = a.signature;
  __threadfence_system();
  host->fault = static_cast<uint32_t>(fault);
}

// True once peer's data of this exchange has arrived.
__device__ bool await(const Args& a, uint32_t parity, int peer, uint32_t sequence) {
  const uint64_t want = (static_cast<uint64_t>(a.signature) << 32) | sequence;
  const uint64_t* at = flag(a, a.rank, parity, peer);
  uint64_t start = 0;
  for (uint32_t polls = 1;; ++polls) {
    const uint64_t seen = load_acquire(at);
    if (seen == want) return true;
    if ((seen >> 32) != 0 &&
        static_cast<int32_t>(static_cast<uint32_t>(seen) - sequence) >= 0) {  // there, but not this
      give_up(a, Fault::kDivergence, peer, sequence, seen);
      return false;
    }
    if (polls % 64 != 0) continue;
    const uint64_t now = now_ns();
    if (start == 0) start = now;
    if (poisoned(a)) return false;
    const bool late = now > start && now - start > a.timeout_ns;
    if (*reinterpret_cast<volatile uint32_t*>(&a.host->abort) != 0 || late) {
      give_up(a, late ? Fault::kTimeout : Fault::kAborted, peer, sequence, seen);
      return false;
    }
  }
}

struct SumF32 {
  static __device__ uint4 add(uint4 a, uint4 b) {
    const auto f = [](uint32_t x, uint32_t y) {
      return __float_as_uint(__fadd_rn(__uint_as_float(x), __uint_as_float(y)));
    };
    return {f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)};
  }
};

// Two bf16 in one word, summed in f32: [low, high] of eight values.
struct Wide {
  float v[8];
  __device__ explicit Wide(uint4 p) {
    const uint32_t words[4] = {p.x, p.y, p.z, p.w};
    for (int i = 0; i < 4; ++i)
      v[2 * i] = __uint_as_float(words[i] << 16), v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  __device__ void add(const Wide& o) {
    for (int i = 0; i < 8; ++i) v[i] = __fadd_rn(v[i], o.v[i]);
  }
  __device__ uint4 round() const {
    uint32_t words[4];
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i])),
                     high = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i + 1]));
      words[i] = low | (high << 16);
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

// The sum in rank order of one pack.
template <Op kOp>
__device__ uint4 sum(const Args& a, uint4 own, uint32_t parity, int64_t i) {
  const auto of = [&](int r) { return r == a.rank ? own : load_pack(inbox(a, a.rank, parity, r) + i); };
  if constexpr (kOp == Op::kSumF32) {
    uint4 total = of(0);
    for (int r = 1; r < a.world; ++r) total = SumF32::add(total, of(r));
    return total;
  } else {
    Wide total(of(0));
    for (int r = 1; r < a.world; ++r) total.add(Wide(of(r)));
    return total.round();
  }
}

template <Op kOp>
__global__ void __launch_bounds__(kThreads) exchange(const Args a, const uint4* in, uint4* out, int64_t packs) {
  __shared__ uint32_t shared_sequence;
  __shared__ int shared_fine;
  if (threadIdx.x == 0) {
    shared_sequence = a.sequence[blockIdx.x];
    shared_fine = poisoned(a) ? 0 : 1;
  }
  __syncthreads();
  uint32_t sequence = shared_sequence;
  if (shared_fine == 0) return;

  const int64_t run = (packs + gridDim.x - 1) / gridDim.x;
  const int64_t last = min(packs, (blockIdx.x + 1) * run);
  for (int64_t first = blockIdx.x * run; first < last; first += kChunkPacks) {
    const int64_t n = min(kChunkPacks, last - first);
    const uint32_t parity = ++sequence & 1;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      const uint4 v = in[first + i];
      for (int p = 0; p < a.world; ++p)
        if (p != a.rank) inbox(a, p, parity, a.rank)[i] = v;
    }
    __syncthreads();
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < a.world && peer != a.rank) {
      __threadfence_system();
      store_release(flag(a, peer, parity, a.rank), (static_cast<uint64_t>(a.signature) << 32) | sequence);
      if (!await(a, parity, peer, sequence)) shared_fine = 0;
    }
    __syncthreads();
    if (shared_fine == 0) return;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      if constexpr (kOp == Op::kGather) {
        for (int r = 0; r < a.world; ++r)
          out[r * packs + first + i] = r == a.rank ? in[first + i] : load_pack(inbox(a, a.rank, parity, r) + i);
      } else {
        out[first + i] = sum<kOp>(a, in[first + i], parity, i);
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) a.sequence[blockIdx.x] = sequence;
}

}  // namespace

cudaError_t launch(Op op, const Args& args, const void* in, void* out, int64_t packs, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((packs + kThreads - 1) / kThreads, 1, kMaxBlocks));
  const auto* from = static_cast<const uint4*>(in);
  auto* to = static_cast<uint4*>(out);
  switch (op) {
    case Op::kSumF32:
      exchange<Op::kSumF32><<<blocks, kThreads, 0, stream>>>(args, from, to, packs);
      break;
    case Op::kSumBf16:
      exchange<Op::kSumBf16><<<blocks, kThreads, 0, stream>>>(args, from, to, packs);
      break;
    case Op::kGather:
      exchange<Op::kGather><<<blocks, kThreads, 0, stream>>>(args, from, to, packs);
      break;
  }
  return cudaGetLastError();
}

}  // namespace dsf::comm::peer
