// Scores: a warp takes kKeys keys of one query at a time, lanes are heads. Selection: one block per row, a radix select over ordered bits in
// four passes, then one pass that writes the winners in ascending order; ties go to the lower index. No float atomics anywhere.
// Limit: scores, f32 FMA (n_keys * n_heads * dim per row); selection, five passes over the row's scores by one SM.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

// ---- scores

constexpr int kScoreThreads = 128;
constexpr int kKeys = 4;              // per warp and pass: each query value in a register serves all of them
constexpr int kKeysPerBlock = 128;

__global__ void __launch_bounds__(kScoreThreads) index_score_kernel(IndexScoreArgs a) {
  extern __shared__ float q[];  // [n_heads, dim + 1]: the pad keeps lanes (heads) on different banks
  const int64_t row = blockIdx.y;
  const int stride = static_cast<int>(a.dim) + 1;
  for (int i = threadIdx.x; i < a.n_heads * a.dim; i += kScoreThreads) {
    q[i / static_cast<int>(a.dim) * stride + i % static_cast<int>(a.dim)] = a.q[row * a.n_heads * a.dim + i];
  }
  __syncthreads();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t visible = a.visible[row];
  const int64_t first = int64_t{blockIdx.x} * kKeysPerBlock;
  const float* keys = a.keys + (a.keys_offset != nullptr ? a.keys_offset[row] * a.dim : 0);
  for (int64_t g = first + warp * kKeys; g < first + kKeysPerBlock && g < a.n_keys; g += kScoreThreads / kWarp * kKeys) {
    float score[kKeys] = {};
    for (int h0 = 0; h0 < a.n_heads && g < visible; h0 += kWarp) {
      const int h = h0 + lane;
      const float weight = h < a.n_heads ? a.weight[row * a.n_heads + h] : 0.0f;
      const float* qh = q + (h < a.n_heads ? h : 0) * stride;
      float dot[kKeys] = {};
      for (int d = 0; d < a.dim; ++d) {
        const float qd = qh[d];
#pragma unroll
        for (int k = 0; k < kKeys; ++k) {
          const int64_t key = g + k < visible ? g + k : g;
          dot[k] = fmaf(qd, __ldg(keys + key * a.dim + d), dot[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kKeys; ++k) score[k] += warp_sum(weight * fmaxf(dot[k], 0.0f));
    }
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      if (lane == 0 && g + k < a.n_keys) a.score[row * a.n_keys + g + k] = g + k < visible ? score[k] : kNever;
    }
  }
}

// ---- selection

constexpr int kSelectThreads = 1024;
constexpr int kSelectWarps = kSelectThreads / kWarp;
constexpr int kBins = 256;

// Order-preserving bits; 0 for -infinity, which never wins. -0 counts as +0, as a comparison of floats would have it.
__device__ uint32_t ordered_bits(float f) {
  if (f == kNever) return 0;
  const uint32_t u = __float_as_uint(f + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

struct SelectShared {
  uint32_t bins[kBins];
  uint32_t warp_counts[kSelectWarps];
  uint32_t digit, remaining;
};

// Exclusive count of flags before this thread in block order; total: over the block.
__device__ uint32_t block_rank(bool flag, SelectShared& s, uint32_t& total) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t votes = __ballot_sync(0xffffffffu, flag);
  if (lane == 0) s.warp_counts[warp] = __popc(votes);
  __syncthreads();
  uint32_t before = 0;
  total = 0;
  for (int w = 0; w < kSelectWarps; ++w) {
    if (w == warp) before = total;
    total += s.warp_counts[w];
  }
  __syncthreads();
  return before + __popc(votes & ((1u << lane) - 1));
}

// The bits of the k-th best of n values, and how many of the values equal to it are taken. 0 bits when fewer than k are worth taking.
template <class Bits>
__device__ uint32_t kth_best(int64_t n, uint32_t k, Bits bits, SelectShared& s, uint32_t& take_equal) {
  uint32_t prefix = 0, remaining = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int b = threadIdx.x; b < kBins; b += kSelectThreads) s.bins[b] = 0;
    __syncthreads();
    const uint32_t high_mask = shift == 24 ? 0u : ~0u << (shift + 8);
    for (int64_t i = threadIdx.x; i < n; i += kSelectThreads) {
      const uint32_t u = bits(i);
      if (u != 0 && (u & high_mask) == prefix) atomicAdd(&s.bins[(u >> shift) & 0xff], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t left = remaining;
      int digit = kBins - 1;
      for (; digit > 0 && s.bins[digit] < left; --digit) left -= s.bins[digit];
      s.digit = static_cast<uint32_t>(digit);
      // Digit 0 also stands for "ran out": then everything that is worth taking is taken.
      s.remaining = s.bins[digit] < left ? 0xffffffffu : left;
    }
    __syncthreads();
    if (s.remaining == 0xffffffffu) {
      take_equal = 0;
      __syncthreads();
      return 0;
    }
    prefix |= s.digit << shift;
    remaining = s.remaining;
    __syncthreads();
  }
  take_equal = remaining;
  return prefix;
}

// Writes index(i) of the (at most k) best of n values to out, ascending in i, then -1 up to k. Called by a whole block.
template <class Bits, class Index>
__device__ void select_best(int64_t n, int64_t k, Bits bits, Index index, int32_t* out, SelectShared& s) {
  uint32_t take_equal = 0;
  const uint32_t threshold = kth_best(n, static_cast<uint32_t>(k), bits, s, take_equal);
  uint32_t written = 0, equal_seen = 0;
  for (int64_t base = 0; base < n; base += kSelectThreads) {
    const int64_t i = base + threadIdx.x;
    const uint32_t u = i < n ? bits(i) : 0;
    uint32_t equals = 0, winners = 0;
    const bool is_equal = u != 0 && u == threshold;
    const uint32_t equal_rank = block_rank(is_equal, s, equals);
    const bool wins = u > threshold || (is_equal && equal_seen + equal_rank < take_equal);
    const uint32_t place = block_rank(wins, s, winners);
    if (wins) out[written + place] = index(i);
    written += winners;
    equal_seen += equals;
  }
  for (int64_t i = written + threadIdx.x; i < k; i += kSelectThreads) out[i] = -1;
}

__global__ void __launch_bounds__(kSelectThreads) topk_kernel(TopkArgs a) {
  __shared__ SelectShared s;
  const int64_t row = blockIdx.x;
  const float* score = a.score + row * a.n_keys;
  int32_t* out = a.selection + row * a.k;
  if (a.blocks == nullptr) {
    select_best(a.n_keys, a.k, [&](int64_t i) { return ordered_bits(score[i]); }, [](int64_t i) { return static_cast<int32_t>(i); }, out, s);
    return;
  }
  // The kept blocks are ascending, so positions in their concatenation are in row order.
  const int32_t* blocks = a.blocks + row * a.max_blocks;
  const auto row_of = [&](int64_t i) { return static_cast<int64_t>(blocks[i / a.block_size]) * a.block_size + i % a.block_size; };
  const auto bits = [&](int64_t i) {
    if (blocks[i / a.block_size] < 0) return 0u;
    const int64_t g = row_of(i);
    return g < a.n_keys ? ordered_bits(score[g]) : 0u;
  };
  select_best(a.max_blocks * a.block_size, a.k, bits, [&](int64_t i) { return static_cast<int32_t>(row_of(i)); }, out, s);
}

__global__ void __launch_bounds__(kSelectThreads) candidate_blocks_kernel(CandidateBlocksArgs a) {
  __shared__ SelectShared s;
  const int64_t row = blockIdx.x;
  const float* score = a.score + row * a.n_keys;
  const int64_t newest = a.visible[row] > 0 ? (a.visible[row] - 1) / a.block_size : -1;
  const auto bits = [&](int64_t b) {
    if (b == newest) return 0xffffffffu;
    float best = kNever;
    for (int64_t g = b * a.block_size; g < (b + 1) * a.block_size && g < a.n_keys; ++g) best = fmaxf(best, score[g]);
    return ordered_bits(best);
  };
  const int64_t n_blocks = (a.n_keys + a.block_size - 1) / a.block_size;
  select_best(n_blocks, a.max_blocks, bits, [](int64_t b) { return static_cast<int32_t>(b); }, a.blocks + row * a.max_blocks, s);
}

}  // namespace

Result<void> index_score_cuda(const IndexScoreArgs& a, CudaStream stream) {
  if (a.n_rows == 0 || a.n_keys == 0) return {};
  const auto shared = static_cast<size_t>(a.n_heads * (a.dim + 1)) * sizeof(float);
  if (shared > 48 * 1024) return fail(Code::kUsage, "index_score", std::to_string(a.n_heads) + " heads of " + std::to_string(a.dim) + " do not fit shared memory");
  index_score_kernel<<<dim3(grid_of(a.n_keys, kKeysPerBlock), static_cast<unsigned>(a.n_rows)), kScoreThreads, shared, stream>>>(a);
  return launched("index_score");
}

Result<void> topk_cuda(const TopkArgs& a, CudaStream stream) {
  if (a.n_rows == 0) return {};
  topk_kernel<<<static_cast<unsigned>(a.n_rows), kSelectThreads, 0, stream>>>(a);
  return launched("topk");
}

Result<void> candidate_blocks_cuda(const CandidateBlocksArgs& a, CudaStream stream) {
  if (a.n_rows == 0) return {};
  candidate_blocks_kernel<<<static_cast<unsigned>(a.n_rows), kSelectThreads, 0, stream>>>(a);
  return launched("candidate_blocks");
}

}  // namespace dsf::serve::ops
