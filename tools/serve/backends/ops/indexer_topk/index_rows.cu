// Scores of one query against its session's keys. Grid (blocks, rows): the blocks of a row take tiles of keys in turn
// up to what the row sees, so the launch depends on no position. Four lanes share a key: lane t adds the heads 8j + 2t
// and 8j + 2t + 1, then the four sums meet in a tree. A dot product is added up in blocks of 32, the block of the cache
// format: inside a block quantised values add up exactly, so every kernel that keeps the order of blocks and heads
// gives the same bits. Limit: f32 FMA (n_heads * dim per key).
#include <algorithm>

#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kBlock = 32;  // of the cache format
constexpr int kLanesPerKey = 4, kHeadsPerLane = 8;
constexpr int kHeadsAtOnce = kLanesPerKey * kHeadsPerLane;
constexpr int kTile = kThreads / kLanesPerKey;  // keys per block and pass

// The head that `lane` of a key's four adds as its e-th.
__device__ int head_of(int first, int lane, int e) { return first + 8 * (e / 2) + 2 * lane + e % 2; }

// The key at place i of the row's list, or -1.
__device__ int64_t key_at(const IndexRowsArgs& a, int64_t row, int64_t i, int64_t visible) {
  if (a.blocks == nullptr) return i < visible ? i : -1;
  const int64_t block = a.blocks[row * a.max_blocks + i / a.block_size];
  const int64_t key = block * a.block_size + i % a.block_size;
  return block >= 0 && key < visible ? key : -1;
}

// What this lane adds to the key's score. q: [n_heads, stride] in shared memory.
__device__ float lane_score(const IndexRowsArgs& a, const float* q, int stride, const float* key, const float* weight,
                            int lane) {
  float total = 0;
  for (int first = 0; first < a.n_heads; first += kHeadsAtOnce) {
    float dot[kHeadsPerLane] = {};
    for (int b = 0; b < a.dim; b += kBlock) {
      float part[kHeadsPerLane] = {};
      for (int d = b; d < b + kBlock; d += 4) {
        const float4 k = __ldg(reinterpret_cast<const float4*>(key + d));
#pragma unroll
        for (int e = 0; e < kHeadsPerLane; ++e) {
          const int h = head_of(first, lane, e);
          const float4 v = *reinterpret_cast<const float4*>(q + (h < a.n_heads ? h : 0) * stride + d);
          part[e] = fmaf(v.w, k.w, fmaf(v.z, k.z, fmaf(v.y, k.y, fmaf(v.x, k.x, part[e]))));
        }
      }
#pragma unroll
      for (int e = 0; e < kHeadsPerLane; ++e) dot[e] += part[e];
    }
#pragma unroll
    for (int e = 0; e < kHeadsPerLane; ++e) {
      const int h = head_of(first, lane, e);
      if (h < a.n_heads) total = fmaf(weight[h], fmaxf(dot[e], 0.0f), total);
    }
  }
  return total;
}

__global__ void __launch_bounds__(kThreads) index_rows_kernel(IndexRowsArgs a) {
  extern __shared__ float q[];  // [n_heads, dim + 4]: the pad spreads heads over the banks
  const int64_t row = blockIdx.y, visible = a.visible[row];
  const int64_t n = a.blocks != nullptr ? a.max_blocks * a.block_size : visible;
  if (visible <= a.skip || int64_t{blockIdx.x} * kTile >= n) return;
  const int stride = static_cast<int>(a.dim) + 4;
  for (int i = threadIdx.x; i < a.n_heads * a.dim; i += kThreads) {
    q[i / static_cast<int>(a.dim) * stride + i % static_cast<int>(a.dim)] = a.q[row * a.n_heads * a.dim + i];
  }
  __syncthreads();
  const int lane = threadIdx.x % kLanesPerKey;
  const float* keys = a.keys + a.keys_offset[row] * a.dim;
  for (int64_t first = int64_t{blockIdx.x} * kTile; first < n; first += int64_t{gridDim.x} * kTile) {
    const int64_t i = first + threadIdx.x / kLanesPerKey;
    const int64_t key = i < n ? key_at(a, row, i, visible) : -1;
    float score = key >= 0 ? lane_score(a, q, stride, keys + key * a.dim, a.weight + row * a.n_heads, lane) : 0.0f;
    score += __shfl_xor_sync(0xffffffffu, score, 1);
    score += __shfl_xor_sync(0xffffffffu, score, 2);
    if (lane == 0 && i < n) a.score[row * a.n_keys + i] = key >= 0 ? score : kNever;
  }
}

}  // namespace

Result<void> index_rows_cuda(const IndexRowsArgs& a, CudaStream stream) {
  if (a.n_rows == 0 || a.n_keys == 0) return {};
  const auto shared = static_cast<size_t>(a.n_heads * (a.dim + 4)) * sizeof(float);
  if (shared > 48 * 1024 || a.dim % kBlock != 0) {
    return fail(Code::kUsage, "index_rows",
                "no instance for " + std::to_string(a.n_heads) + " heads of " + std::to_string(a.dim));
  }
  const unsigned blocks = std::min(grid_of(a.n_keys, kTile), a.n_rows <= 16 ? 528u : 66u);
  index_rows_kernel<<<dim3(blocks, static_cast<unsigned>(a.n_rows)), kThreads, shared, stream>>>(a);
  return launched("index_rows");
}

}  // namespace dsf::serve::ops
