// index_rows over packed keys on tensor cores. Codes of e2m1, doubled, are small integers, and a block of 32 of them is
// the k of one integer MMA, so a block's dot product is exact; blocks and heads are added in the order of
// index_rows.cu. A warp takes 16 keys at a time, query fragments stay in registers. Accumulators start at the bits
// of 1.5 * 2^23, so that the integer sum read as a float needs one subtraction. Limit: bandwidth, 68 bytes per key;
// about six issue slots of an SM per key and query.
#include <algorithm>

#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"
#include "tools/serve/backends/ops/common/mma.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kKeys = 16;  // per warp and pass
constexpr int kTile = kWarps * kKeys;
constexpr int kMagic = 0x4B400000;  // 12582912.0f
constexpr float kMagicFloat = 12582912.0f;

template <int Blocks>
constexpr int64_t kRowBytes = packed_row_bytes(FakeQuant::kIndex, 32 * Blocks);

// Four e2m1 codes in the low half of `codes` -> four signed bytes, each twice the value.
__device__ uint32_t doubled_bytes(uint32_t codes) {
  const uint32_t magnitude = codes & 0x7777u;
  const uint32_t plus = permute(0x03020100u, 0x0C080604u, magnitude),
                 minus = permute(0xFDFEFF00u, 0xF4F8FAFCu, magnitude);
  const uint32_t negative = permute(0x00008000u, 0u, ((codes >> 3) & 0x1111u) | 0x8888u);
  return (plus & ~negative) | (minus & negative);
}

// The query as B fragments: lane (g, t) holds of head 8j + g the values 8t .. 8t + 7 of every block, as twice the value
// over the block's scale. weight: of the heads 8j + 2t and 8j + 2t + 1. Blocks: of 32 values, one scale and one MMA
// each.
template <int Groups, int Blocks>
struct Query {
  uint32_t b[Groups][Blocks][2];
  float weight[Groups][2];
};
// A quarter of the scales, which undoes both doublings.
template <int Groups, int Blocks>
using Scales = float[Blocks][Groups][8];

__device__ uint32_t bytes_of(const float4& v, float inverse) {
  const auto byte = [&](float f) { return static_cast<uint32_t>(static_cast<int>(f * inverse)) & 0xffu; };
  return byte(v.x) | byte(v.y) << 8 | byte(v.z) << 16 | byte(v.w) << 24;
}

// Every warp does the same.
template <int Groups, int Blocks>
__device__ Query<Groups, Blocks> load_query(const IndexRowsArgs& a, int64_t row, Scales<Groups, Blocks>& scales) {
  Query<Groups, Blocks> q;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < Groups; ++j) {
    const float* head = a.q + (row * a.n_heads + 8 * j + g) * 32 * Blocks + 8 * t;
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      const float4 low = *reinterpret_cast<const float4*>(head + 32 * b),
                   high = *reinterpret_cast<const float4*>(head + 32 * b + 4);
      float top = fmaxf(fmaxf(fmaxf(fabsf(low.x), fabsf(low.y)), fmaxf(fabsf(low.z), fabsf(low.w))),
                        fmaxf(fmaxf(fabsf(high.x), fabsf(high.y)), fmaxf(fabsf(high.z), fabsf(high.w))));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      // The power of two with top / scale in [4, 8): every quantised value is then a multiple of a half, at most 12 of
      // them.
      const uint32_t exponent = top >= 0x1p-100f ? (__float_as_uint(top) >> 23) - 2 : 127u;
      const float inverse = __uint_as_float((254u - exponent) << 23);
      q.b[j][b][0] = bytes_of(low, 2 * inverse);
      q.b[j][b][1] = bytes_of(high, 2 * inverse);
      if (t == 0 && threadIdx.x < kWarp) scales[b][j][g] = 0.25f * __uint_as_float(exponent << 23);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) q.weight[j][i] = a.weight[row * a.n_heads + 8 * j + 2 * t + i];
  }
  __syncthreads();
  return q;
}

// The key at place i of the row's list, or -1.
__device__ int64_t key_at(const IndexRowsArgs& a, int64_t row, int64_t i, int64_t n, int64_t visible) {
  if (i >= n) return -1;
  if (a.blocks == nullptr) return i < visible ? i : -1;
  const int64_t block = a.blocks[row * a.max_blocks + i / a.block_size];
  const int64_t key = block * a.block_size + i % a.block_size;
  return block >= 0 && key < visible ? key : -1;
}

// This lane's share of a packed key: eight codes of each block, and the scale bytes. Zeros when there is none.
template <int Blocks>
struct Key {
  uint32_t codes[Blocks], scales;
};
template <int Blocks>
__device__ Key<Blocks> load_key(const uint8_t* keys, int64_t key, int t) {
  Key<Blocks> k{};
  if (key < 0) return k;
  const auto* words = reinterpret_cast<const uint32_t*>(keys + key * kRowBytes<Blocks>);
#pragma unroll
  for (int b = 0; b < Blocks; ++b) k.codes[b] = __ldg(words + 4 * b + t);
  k.scales = __ldg(words + 4 * Blocks);
  return k;
}

// What this lane adds to the scores of its two keys.
template <int Groups, int Blocks>
__device__ float2 lane_scores(const Query<Groups, Blocks>& q, const Scales<Groups, Blocks>& scales,
                              const Key<Blocks>& low, const Key<Blocks>& high, int t) {
  float dot[Groups][4] = {};
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    const uint32_t a[4] = {doubled_bytes(low.codes[b]), doubled_bytes(high.codes[b]), doubled_bytes(low.codes[b] >> 16),
                           doubled_bytes(high.codes[b] >> 16)};
    const float key_scale[2] = {__uint_as_float((low.scales >> (8 * b) & 0xffu) << 23),
                                __uint_as_float((high.scales >> (8 * b) & 0xffu) << 23)};
#pragma unroll
    for (int j = 0; j < Groups; ++j) {
      int32_t c[4];
      mma_s8(c, a, q.b[j][b][0], q.b[j][b][1], kMagic);
      const float2 scale = *reinterpret_cast<const float2*>(&scales[b][j][2 * t]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dot[j][i] =
            fmaf(__int_as_float(c[i]) - kMagicFloat, (i % 2 == 0 ? scale.x : scale.y) * key_scale[i / 2], dot[j][i]);
    }
  }
  float2 total = make_float2(0, 0);
#pragma unroll
  for (int j = 0; j < Groups; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      total.x = fmaf(q.weight[j][i], fmaxf(dot[j][i], 0.0f), total.x);
      total.y = fmaf(q.weight[j][i], fmaxf(dot[j][2 + i], 0.0f), total.y);
    }
  }
  return total;
}

__device__ float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

template <int Groups, int Blocks>
__global__ void __launch_bounds__(kThreads, 2) index_rows_packed_kernel(IndexRowsArgs a, const uint8_t* keys) {
  __shared__ alignas(16) Scales<Groups, Blocks> scales;
  start_after_previous();
  const int64_t row = blockIdx.y, visible = a.visible[row];
  const int64_t n = a.blocks != nullptr ? a.max_blocks * a.block_size : visible;
  if (visible <= a.skip || int64_t{blockIdx.x} * kTile >= n) return;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const Query<Groups, Blocks> q = load_query<Groups, Blocks>(a, row, scales);
  keys += a.keys_offset[row] * kRowBytes<Blocks>;
  int64_t first = int64_t{blockIdx.x} * kTile + threadIdx.x / kWarp * kKeys;
  int64_t at[2] = {key_at(a, row, first + g, n, visible), key_at(a, row, first + g + 8, n, visible)};
  Key<Blocks> low = load_key<Blocks>(keys, at[0], t), high = load_key<Blocks>(keys, at[1], t);
  const int64_t step = int64_t{gridDim.x} * kTile;
  for (; first < n; first += step) {
    const int64_t next[2] = {key_at(a, row, first + step + g, n, visible),
                             key_at(a, row, first + step + g + 8, n, visible)};
    const Key<Blocks> next_low = load_key<Blocks>(keys, next[0], t), next_high = load_key<Blocks>(keys, next[1], t);
    const float2 mine = lane_scores<Groups, Blocks>(q, scales, low, high, t);
    const float score[2] = {quad_sum(mine.x), quad_sum(mine.y)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t place = first + g + 8 * i;
      if (t == 0 && place < n) a.score[row * a.n_keys + place] = at[i] >= 0 ? score[i] : kNever;
      at[i] = next[i];
    }
    low = next_low, high = next_high;
  }
}

using Kernel = void (*)(IndexRowsArgs, const uint8_t*);

// nullptr: no instance.
Kernel kernel_of(int64_t n_heads, int64_t dim) {
  if (dim == 64 && n_heads == 8) return index_rows_packed_kernel<1, 2>;
  if (dim != 128) return nullptr;
  return n_heads == 8    ? index_rows_packed_kernel<1, 4>
         : n_heads == 16 ? index_rows_packed_kernel<2, 4>
         : n_heads == 32 ? index_rows_packed_kernel<4, 4>
                         : nullptr;
}

}  // namespace

bool index_rows_packed_fits(int64_t n_heads, int64_t dim) { return kernel_of(n_heads, dim) != nullptr; }

Result<void> index_rows_packed_cuda(const IndexRowsArgs& a, const uint8_t* keys, CudaStream stream) {
  const Kernel kernel = kernel_of(a.n_heads, a.dim);
  if (kernel == nullptr) {
    return fail(Code::kUsage, "index_rows",
                "no packed instance for " + std::to_string(a.n_heads) + " heads of " + std::to_string(a.dim));
  }
  if (a.n_rows == 0 || a.n_keys == 0) return {};
  const dim3 grid(std::min(grid_of(a.n_keys, kTile), a.n_rows <= 4    ? 264u
                                                     : a.n_rows <= 16 ? 132u
                                                                      : 33u),
                  static_cast<unsigned>(a.n_rows));
  return launch_after(kernel, stream, grid, kThreads, 0, a, keys);
}

}  // namespace dsf::serve::ops
