// The k best of a row's values, ascending by index, ties to the lower index. A block takes a tile of kTile values into
// registers, finds the k-th best by a radix select over ordered bits (digits of 11, 11 and 10 bits) and writes the
// winners in order. A row of one tile is done then; the winners of several tiles go, still in order of index, through
// one more block. Grid (tiles, rows), tiles of the widest row: those past a row's end leave at once, so the launch
// depends on no position. Integer atomics in shared memory only: the result is exact. Limit: scores read once; launch.
#include <algorithm>

#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPerThread = 16;       // values a thread holds in the first round
constexpr int kMergePerThread = 32;  // and in the second
constexpr int kTile = kThreads * kPerThread;
constexpr int kMost = kThreads * kMergePerThread;  // winners the second round takes
constexpr int kBins = 2048;                        // two per thread
constexpr uint32_t kRanOut = 0xffffffffu;

// Order-preserving bits; 0 for -infinity, which never wins. -0 counts as +0, as a comparison of floats would have it.
__device__ uint32_t ordered_bits(float f) {
  if (f == kNever) return 0;
  const uint32_t u = __float_as_uint(f + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

struct Shared {
  uint32_t bins[kBins];
  uint32_t counts[kWarps];
  uint32_t digit, remaining;
};

__device__ uint32_t inclusive_scan(uint32_t v) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, v, step);
    if (lane >= step) v += below;
  }
  return v;
}

// The sum of v over the threads before this one in the block, and over all of them.
__device__ uint32_t exclusive_block_scan(uint32_t v, Shared& s, uint32_t& total) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t here = inclusive_scan(v);
  if (lane == kWarp - 1) s.counts[warp] = here;
  __syncthreads();
  const uint32_t warps = inclusive_scan(s.counts[lane]);
  total = __shfl_sync(0xffffffffu, warps, kWarp - 1);
  const uint32_t before = warp > 0 ? __shfl_sync(0xffffffffu, warps, warp - 1) : 0;
  __syncthreads();
  return before + here - v;
}

// Counts one digit of the values that agree with `prefix` above it, and finds in which bin, from the top, the left-th
// of them lies.
template <int N>
__device__ void find_digit(const uint32_t (&u)[N], int shift, uint32_t digit_mask, uint32_t prefix, uint32_t left,
                           Shared& s) {
  for (int b = threadIdx.x; b < kBins; b += kThreads) s.bins[b] = 0;
  if (threadIdx.x == 0) s.remaining = kRanOut;
  __syncthreads();
  const uint32_t above = ~((digit_mask << shift) | ((1u << shift) - 1));
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (u[j] != 0 && (u[j] & above) == prefix) atomicAdd(&s.bins[(u[j] >> shift) & digit_mask], 1u);
  }
  __syncthreads();
  const int high = kBins - 1 - 2 * static_cast<int>(threadIdx.x);
  const uint32_t first = s.bins[high], both = first + s.bins[high - 1];
  uint32_t total = 0;
  const uint32_t before = exclusive_block_scan(both, s, total);
  if (before < left && left <= before + both) {
    const bool is_first = left <= before + first;
    s.digit = static_cast<uint32_t>(is_first ? high : high - 1);
    s.remaining = left - before - (is_first ? 0 : first);
  }
  __syncthreads();
}

// The bits of the k-th best, and how many of the values equal to it are taken. 0 bits when fewer than k are worth
// taking.
template <int N>
__device__ uint32_t kth_best(const uint32_t (&u)[N], uint32_t k, Shared& s, uint32_t& take_equal) {
  uint32_t prefix = 0, left = k;
#pragma unroll 1
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    find_digit(u, shift, pass == 2 ? 0x3ffu : 0x7ffu, prefix, left, s);
    if (s.remaining == kRanOut) {
      take_equal = 0;
      return 0;
    }
    prefix |= s.digit << shift;
    left = s.remaining;
    __syncthreads();
  }
  take_equal = left;
  return prefix;
}

// Where in the block's part value j of a thread lies: warps one after the other, a warp's values in rows of 32.
template <int N>
__device__ int place_of(int j) {
  return static_cast<int>(threadIdx.x / kWarp * kWarp * N + j * kWarp + threadIdx.x % kWarp);
}

// u[j]: the value at place_of<N>(j). Calls emit(rank, j) for the at most k winners, ranks in order of place; returns
// how many there are.
template <int N, class Emit>
__device__ uint32_t select_best(const uint32_t (&u)[N], uint32_t k, Shared& s, Emit emit) {
  uint32_t take = 0;
  const uint32_t threshold = kth_best(u, k, s, take);
  uint32_t better = 0, equal = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    better += u[j] > threshold ? 1 : 0;
    equal += u[j] == threshold && u[j] != 0 ? 1 : 0;
  }
  uint32_t total_better = 0, total_equal = 0;
  better = __shfl_sync(0xffffffffu, exclusive_block_scan(better, s, total_better), 0);  // before this warp
  equal = __shfl_sync(0xffffffffu, exclusive_block_scan(equal, s, total_equal), 0);
  const uint32_t lower = (1u << threadIdx.x % kWarp) - 1;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const bool wins = u[j] > threshold, ties = u[j] == threshold && u[j] != 0;
    const uint32_t winners = __ballot_sync(0xffffffffu, wins), tied = __ballot_sync(0xffffffffu, ties);
    const uint32_t better_before = better + __popc(winners & lower), equal_before = equal + __popc(tied & lower);
    if (wins || (ties && equal_before < take)) emit(better_before + min(equal_before, take), j);
    better += __popc(winners);
    equal += __popc(tied);
  }
  return total_better + min(total_equal, take);
}

// ---- what is chosen from

// Indices are 32-bit and without divisions where they can be: a tile's code runs once, and fetching it would be most of its time.

// The rows of the cache.
struct RowSource {
  SelectRowsArgs a;
  __device__ int count(int64_t row) const { return static_cast<int>(a.visible[row]); }
  // How many are known to be worth taking: with no more than k of them nothing needs to be scored or compared.
  __device__ int known(int64_t row) const { return count(row); }
  __device__ int index(int64_t, int i) const { return i; }
  __device__ uint32_t bits(const float* score, int64_t, int, int i) const { return ordered_bits(score[i]); }
};

// The rows of the candidate blocks.
struct ListedRowSource {
  SelectRowsArgs a;
  // No more blocks can be listed than there are, and the list has no gaps.
  __device__ int count(int64_t row) const {
    return static_cast<int>(min(a.max_blocks, (a.visible[row] + a.block_size - 1) / a.block_size) * a.block_size);
  }
  __device__ int known(int64_t row) const { return a.visible[row] <= a.max_blocks * a.block_size ? static_cast<int>(a.visible[row]) : INT32_MAX; }
  __device__ int index(int64_t row, int i) const {
    const int size = static_cast<int>(a.block_size), block = a.blocks[row * a.max_blocks + i / size];
    return block < 0 ? -1 : block * size + i % size;
  }
  __device__ uint32_t bits(const float* score, int64_t row, int visible, int i) const {
    const int g = index(row, i);
    return g < 0 || g >= visible ? 0 : ordered_bits(score[i]);
  }
};

// Blocks of rows by their best row; the newest is always kept. Eight: blocks of eight, scores aligned to 16 bytes.
template <bool Eight>
struct BlockSource {
  CandidateBlocksArgs a;
  __device__ int count(int64_t row) const { return static_cast<int>((a.visible[row] + a.block_size - 1) / a.block_size); }
  __device__ int known(int64_t row) const { return count(row); }
  __device__ int index(int64_t, int i) const { return i; }
  __device__ uint32_t bits(const float* score, int64_t, int visible, int i) const {
    const int size = static_cast<int>(a.block_size);
    const bool newest = (i + 1) * size >= visible;
    float best = kNever;
    if constexpr (Eight) {
      const float4* const from = reinterpret_cast<const float4*>(score) + 2 * i;
      const float4 none = make_float4(kNever, kNever, kNever, kNever), a4 = newest ? none : from[0], b4 = newest ? none : from[1];
      best = fmaxf(fmaxf(fmaxf(a4.x, a4.y), fmaxf(a4.z, a4.w)), fmaxf(fmaxf(b4.x, b4.y), fmaxf(b4.z, b4.w)));
    } else {
      for (int g = i * size; !newest && g < (i + 1) * size; ++g) best = fmaxf(best, score[g]);
    }
    return newest ? 0xffffffffu : ordered_bits(best);
  }
};

// The winners of the n values of a row, or of one tile of it, with PerThread of them in a thread.
template <int PerThread, class Source>
__device__ void select_tile(const Source& source, int64_t row, int n, uint32_t k, Shared& s, int32_t* out, uint2* winners) {
  const int first = static_cast<int>(blockIdx.x) * kTile, visible = static_cast<int>(source.a.visible[row]);
  const float* const score = source.a.score + row * source.a.n_keys;
  uint32_t u[PerThread];
#pragma unroll
  for (int j = 0; j < PerThread; ++j) {
    const int i = first + place_of<PerThread>(j);
    u[j] = i < n ? source.bits(score, row, visible, i) : 0;
  }
  const auto index = [&](int j) { return source.index(row, first + place_of<PerThread>(j)); };
  if (n <= kTile) {
    const uint32_t found = select_best(u, k, s, [&](uint32_t place, int j) { out[place] = index(j); });
    for (uint32_t i = found + threadIdx.x; i < k; i += kThreads) out[i] = -1;
    return;
  }
  const uint32_t found = select_best(u, k, s, [&](uint32_t place, int j) {
    winners[place] = make_uint2(u[j], static_cast<uint32_t>(index(j)));
  });
  for (uint32_t i = found + threadIdx.x; i < k; i += kThreads) winners[i] = make_uint2(0, 0);
}

template <class Source>
__global__ void __launch_bounds__(kThreads) tile_kernel(Source source, int64_t k, int32_t* out, uint2* winners) {
  __shared__ Shared s;
  start_after_previous();
  const int64_t row = blockIdx.y;
  const int n = source.count(row);
  out += row * k;
  if (source.known(row) <= k) {
    if (blockIdx.x > 0) return;
    for (int i = threadIdx.x; i < k; i += kThreads) out[i] = i < source.known(row) ? i : -1;
    return;
  }
  if (static_cast<int>(blockIdx.x) * kTile >= n) return;
  winners += (row * gridDim.x + blockIdx.x) * k;
  if (n <= kThreads) select_tile<1>(source, row, n, static_cast<uint32_t>(k), s, out, winners);
  else select_tile<kPerThread>(source, row, n, static_cast<uint32_t>(k), s, out, winners);
}

template <class Source>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(Source source, int64_t k, int32_t* out, const uint2* winners, int64_t n_tiles) {
  __shared__ Shared s;
  start_after_previous();
  const int64_t row = blockIdx.x;
  const int n = source.count(row);
  if (source.known(row) <= k || n <= kTile) return;
  out += row * k;
  winners += row * n_tiles * k;
  const int m = (n + kTile - 1) / kTile * static_cast<int>(k);
  uint32_t u[kMergePerThread];
#pragma unroll
  for (int j = 0; j < kMergePerThread; ++j) {
    const int i = place_of<kMergePerThread>(j);
    u[j] = i < m ? winners[i].x : 0;
  }
  const uint32_t found = select_best(u, static_cast<uint32_t>(k), s, [&](uint32_t place, int j) {
    out[place] = static_cast<int32_t>(winners[place_of<kMergePerThread>(j)].y);
  });
  for (int i = found + threadIdx.x; i < k; i += kThreads) out[i] = -1;
}

template <class Source>
Result<void> choose(const char* op, const Source& source, int64_t n_rows, int64_t n, int64_t k, int32_t* out,
                    float* workspace, CudaStream stream) {
  if (n_rows == 0) return {};
  const int64_t n_tiles = std::max<int64_t>((n + kTile - 1) / kTile, 1);
  if (n_tiles > 1 && n_tiles * k > kMost) {
    return fail(Code::kUsage, op, "no instance for the best " + std::to_string(k) + " of " + std::to_string(n));
  }
  auto* const winners = reinterpret_cast<uint2*>(workspace);
  const dim3 grid(static_cast<unsigned>(n_tiles), static_cast<unsigned>(n_rows));
  DSF_OK(launch_after(tile_kernel<Source>, stream, grid, kThreads, 0, source, k, out, winners));
  if (n_tiles == 1) return {};
  return launch_after(merge_kernel<Source>, stream, dim3(static_cast<unsigned>(n_rows)), kThreads, 0, source, k, out, winners, n_tiles);
}

}  // namespace

int64_t select_workspace(int64_t n_rows, int64_t n, int64_t k) {
  return n <= kTile ? 0 : n_rows * ((n + kTile - 1) / kTile) * k * static_cast<int64_t>(sizeof(uint2) / sizeof(float));
}

Result<void> select_rows_cuda(const SelectRowsArgs& a, float* workspace, CudaStream stream) {
  const int64_t n = a.blocks != nullptr ? a.max_blocks * a.block_size : a.n_keys;
  if (a.blocks != nullptr) return choose("select_rows", ListedRowSource{a}, a.n_rows, n, a.k, a.selection, workspace, stream);
  return choose("select_rows", RowSource{a}, a.n_rows, n, a.k, a.selection, workspace, stream);
}

Result<void> select_blocks_cuda(const CandidateBlocksArgs& a, float* workspace, CudaStream stream) {
  const int64_t n = (a.n_keys + a.block_size - 1) / a.block_size;
  if (a.block_size == 8 && a.n_keys % 4 == 0) return choose("select_blocks", BlockSource<true>{a}, a.n_rows, n, a.max_blocks, a.blocks, workspace, stream);
  return choose("select_blocks", BlockSource<false>{a}, a.n_rows, n, a.max_blocks, a.blocks, workspace, stream);
}

}  // namespace dsf::serve::ops
