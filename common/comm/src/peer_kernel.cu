// The exchanges, one launch each. Large: up to 64 blocks of 256 threads, each with an equal run of 16-byte packs; runs
// longer than a chunk go chunk by chunk, with a flag behind each. Small: one or two units of 8 bytes a thread, no flags
// and no barriers. Bytes moved per call and rank: n to each peer over the link (2n for small ones), n * world read
// here. Limit: the latency of one write over the link, then its bandwidth.
#include <algorithm>

#include "peer_device.cuh"

namespace dsf::comm::peer {
namespace {

constexpr int64_t kChunkPacks = kChunkBytes / kPack;

template <Op kOp>
__device__ uint4 sum_pack(const Args& a, uint4 own, uint32_t parity, int64_t i) {
  const auto of = [&](int r) { return r == a.rank ? own : load_pack(inbox(a, a.rank, parity, r) + i); };
  const uint4 first = of(0);
  Sum<kOp> x(first.x), y(first.y), z(first.z), w(first.w);
  for (int r = 1; r < a.world; ++r) {
    const uint4 next = of(r);
    x.add(next.x), y.add(next.y), z.add(next.z), w.add(next.w);
  }
  return {x.word(), y.word(), z.word(), w.word()};
}

template <Op kOp>
__global__ void __launch_bounds__(kThreads) exchange_large(const Args a, const uint4* in, uint4* out, int64_t packs) {
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
        out[first + i] = sum_pack<kOp>(a, in[first + i], parity, i);
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) a.sequence[blockIdx.x] = sequence;
}

// One unit: send it, take the others', put the result. i: of the block, at: of the message.
template <Op kOp>
__device__ bool finish_unit(const Args& a, uint2 own, uint32_t sequence, int i, uint2* out, int64_t at, int64_t units) {
  const uint32_t parity = sequence & 1;
  const auto of = [&](int r, uint2& v) {
    if (r != a.rank) return take(a, small(a, a.rank, parity, r) + i, r, sequence, v);
    v = own;
    return true;
  };
  uint2 v;
  if constexpr (kOp == Op::kGather) {
    for (int r = 0; r < a.world; ++r) {
      if (!of(r, v)) return false;
      out[r * units + at] = v;
    }
  } else {
    if (!of(0, v)) return false;
    Sum<kOp> x(v.x), y(v.y);
    for (int r = 1; r < a.world; ++r) {
      if (!of(r, v)) return false;
      x.add(v.x), y.add(v.y);
    }
    out[at] = {x.word(), y.word()};
  }
  return true;
}

// Every rank's first thread of a block tells the others what the block believes to be doing.
__device__ bool same_operation(const Args& a, uint32_t sequence) {
  for (int p = 0; p < a.world; ++p) {
    uint2 v;
    if (p == a.rank) continue;
    if (!take(a, small(a, a.rank, sequence & 1, p) + kSmallUnits, p, sequence, v)) return false;
    if (v.x != a.signature) return give_up(a, Fault::kDivergence, p, sequence, sequence, v.x), false;
  }
  return true;
}

template <Op kOp>
__global__ void __launch_bounds__(kThreads) exchange_small(const Args a, const uint2* in, uint2* out, int64_t units) {
  const int t = static_cast<int>(threadIdx.x);
  const int64_t run = (units + gridDim.x - 1) / gridDim.x, first = blockIdx.x * run, n = min(run, units - first);
  const bool one = t < n, two = t + kThreads < n;
  const uint2 v = one ? in[first + t] : uint2{}, w = two ? in[first + t + kThreads] : uint2{};
  const uint32_t sequence = a.sequence[blockIdx.x] + 1, parity = sequence & 1;
  const bool fine = !poisoned(a);
  __syncthreads();  // every thread has read the sequence before the first one raises it
  if (!fine) return;
  for (int p = 0; p < a.world; ++p) {
    if (p == a.rank) continue;
    uint4* const to = small(a, p, parity, a.rank);
    if (one) store_pack(to + t, {v.x, sequence, v.y, sequence});
    if (two) store_pack(to + t + kThreads, {w.x, sequence, w.y, sequence});
    if (t == 0) store_pack(to + kSmallUnits, {a.signature, sequence, 0, sequence});
  }
  if (one && !finish_unit<kOp>(a, v, sequence, t, out, first + t, units)) return;
  if (two && !finish_unit<kOp>(a, w, sequence, t + kThreads, out, first + t + kThreads, units)) return;
  if (t == 0 && same_operation(a, sequence)) a.sequence[blockIdx.x] = sequence;
}

template <Op kOp>
void launch_op(const Args& args, const void* in, void* out, int64_t packs, cudaStream_t stream) {
  const bool is_small = packs * kPack <= kSmallBytes;
  const int64_t work = is_small ? packs * 2 : packs;
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((work + kThreads - 1) / kThreads, 1, kMaxBlocks));
  if (is_small)
    exchange_small<kOp>
        <<<blocks, kThreads, 0, stream>>>(args, static_cast<const uint2*>(in), static_cast<uint2*>(out), work);
  else
    exchange_large<kOp>
        <<<blocks, kThreads, 0, stream>>>(args, static_cast<const uint4*>(in), static_cast<uint4*>(out), work);
}

}  // namespace

cudaError_t launch(Op op, const Args& args, const void* in, void* out, int64_t packs, cudaStream_t stream) {
  switch (op) {
    case Op::kSumF32:
      launch_op<Op::kSumF32>(args, in, out, packs, stream);
      break;
    case Op::kSumBf16:
      launch_op<Op::kSumBf16>(args, in, out, packs, stream);
      break;
    case Op::kGather:
      launch_op<Op::kGather>(args, in, out, packs, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace dsf::comm::peer
