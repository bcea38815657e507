// Split attention: a list (window, then selection) is cut every kSplit entries at fixed places, so that the result of a
// row depends on its own list only. Grid (splits, head groups, rows): a warp per head, lanes along head_dim. K and V
// are one vector: loaded once, used twice. Then one block per (row, head) joins the splits in order. Limit: L1
// bandwidth (each of the heads reads every row).
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"
#include "tools/serve/backends/ops/sparse_attention/split.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kHeads = 8;  // heads, warps, per block
constexpr int kBatch = 4;  // entries in flight per warp

// The list entry's vector, or nullptr when there is none at this place.
__device__ const float* entry(const SparseAttentionArgs& a, int64_t row, int64_t place, int64_t max_window) {
  if (place < max_window) {
    const int64_t position = a.window_begin[row] + place;
    const int64_t first = a.window_offset != nullptr ? a.window_offset[row] : 0;
    return position < a.window_end[row] ? a.window + (first + position % a.ring_rows) * a.head_dim : nullptr;
  }
  place -= max_window;
  if (place >= a.n_selected) return nullptr;
  const int32_t g = a.selection[row * a.n_selected + place];
  const int64_t first = a.rows_offset != nullptr ? a.rows_offset[row] : 0;
  return g >= 0 ? a.rows + (first + g) * a.head_dim : nullptr;
}

template <int PerLane>
__global__ void __launch_bounds__(kHeads* kWarp)
    split_kernel(SparseAttentionArgs a, int64_t max_window, Partials partials) {
  const int lane = threadIdx.x % kWarp;
  const int64_t head = int64_t{blockIdx.y} * kHeads + threadIdx.x / kWarp, row = blockIdx.z, split = blockIdx.x;
  if (head >= a.n_heads) return;
  float q[PerLane], o[PerLane] = {};
#pragma unroll
  for (int i = 0; i < PerLane; ++i) q[i] = a.q[(row * a.n_heads + head) * a.head_dim + i * kWarp + lane] * a.scale;
  float m = kNever, l = 0;
  for (int64_t first = split * kSplit; first < (split + 1) * kSplit; first += kBatch) {
    float k[kBatch][PerLane], s[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float* v = entry(a, row, first + b, max_window);
      s[b] = 0;
#pragma unroll
      for (int i = 0; i < PerLane; ++i) {
        k[b][i] = v != nullptr ? v[i * kWarp + lane] : 0.0f;
        s[b] = fmaf(q[i], k[b][i], s[b]);
      }
      s[b] = warp_sum(s[b]);
      if (v == nullptr) s[b] = kNever;
    }
    float top = m;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) top = fmaxf(top, s[b]);
    if (top == kNever) continue;
    const float fade = expf(m - top);  // 0 when m is still -infinity
    l *= fade;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) o[i] *= fade;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float p = expf(s[b] - top);
      l += p;
#pragma unroll
      for (int i = 0; i < PerLane; ++i) o[i] = fmaf(p, k[b][i], o[i]);
    }
    m = top;
  }
  float* out = partials.at(a, row, head, split, gridDim.x);
  if (lane == 0) {
    out[0] = m;
    out[1] = l;
  }
#pragma unroll
  for (int i = 0; i < PerLane; ++i) out[2 + i * kWarp + lane] = o[i];
}

constexpr int kJoinThreads = 128;
constexpr int kMaxSplits = 256;
constexpr int kJoinBatch = 10;  // splits whose values are asked for at once: all of the release's

// The pair (first, first + 1) of a head's output, rotated back if it is one of the last rope_dim values.
__device__ float2 unrotate(const OutputRotation& r, int64_t row, int head_dim, int first, float2 v) {
  const int at = first - (head_dim - static_cast<int>(r.rope_dim));
  if (r.positions == nullptr || at < 0) return v;
  float s, c;
  sincosf(static_cast<float>(r.positions[row]) * r.freq[at / 2], &s, &c);
  return make_float2(v.x * c + v.y * s, v.y * c - v.x * s);
}

// Two columns a thread. A split without entries has weight 0 and is not read. Loops stay loops: the code runs once, and fetching it is part of its time.
__global__ void __launch_bounds__(kJoinThreads, 8) join_kernel(SparseAttentionArgs a, int n_splits, Partials partials, OutputRotation rotation) {
  __shared__ float2 weight[kMaxSplits];  // of a split, and its sum
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y), dim = static_cast<int>(a.head_dim), step = dim + 2;
  start_after_previous();
  const float* const part = partials.at(a, row, head, 0, n_splits);
  float* const out = a.out + (row * a.n_heads + head) * dim;
  float own = kNever;
  int best = 0;  // of this lane's splits
#pragma unroll 1
  for (int s = threadIdx.x % kWarp; s < n_splits; s += kWarp) {
    const float top = part[s * step];
    best = top > own ? s : best, own = fmaxf(own, top);
  }
  const float m = warp_max(own);
  const int any = __shfl_sync(0xffffffffu, best, __ffs(static_cast<int>(__ballot_sync(0xffffffffu, own == m))) - 1);  // one that has entries
  if (m == kNever) {
#pragma unroll 1
    for (int d = threadIdx.x; d < dim; d += kJoinThreads) out[d] = 0;
    return;
  }
#pragma unroll 1
  for (int s = threadIdx.x; s < n_splits; s += kJoinThreads) {
    const float2 top_sum = *reinterpret_cast<const float2*>(part + s * step);
    weight[s] = make_float2(expf(top_sum.x - m), top_sum.y);
  }
  __syncthreads();
  float l = 0;
#pragma unroll 2
  for (int s = 0; s < n_splits; ++s) l = fmaf(weight[s].y, weight[s].x, l);
  const float scale = 1.0f / (l + expf(a.sink[head] - m));
#pragma unroll 1
  for (int d = 2 * threadIdx.x; d < dim; d += 2 * kJoinThreads) {
    float2 sum = make_float2(0, 0);
#pragma unroll 1
    for (int first = 0; first < n_splits; first += kJoinBatch) {
      float2 v[kJoinBatch];
      float w[kJoinBatch];
#pragma unroll
      for (int i = 0; i < kJoinBatch; ++i) {
        w[i] = first + i < n_splits ? weight[first + i].x : 0.0f;
        v[i] = __ldcg(reinterpret_cast<const float2*>(part + (w[i] > 0 ? first + i : any) * step + 2 + d));
      }
#pragma unroll
      for (int i = 0; i < kJoinBatch; ++i) sum.x = fmaf(w[i], v[i].x, sum.x), sum.y = fmaf(w[i], v[i].y, sum.y);
    }
    *reinterpret_cast<float2*>(out + d) = unrotate(rotation, row, dim, d, make_float2(sum.x * scale, sum.y * scale));
  }
}

}  // namespace

int64_t sparse_attention_workspace(int64_t n_rows, int64_t n_heads, int64_t head_dim, int64_t max_window,
                                   int64_t n_selected) {
  return n_rows * n_heads * splits_of(max_window, n_selected) * (head_dim + 2);
}

Result<void> sparse_attention_cuda(const SparseAttentionArgs& a, int64_t max_window, float* partial,
                                   CudaStream stream, const OutputRotation& rotation) {
  if (a.n_rows == 0) return {};
  const int64_t n_splits = splits_of(max_window, a.n_selected);
  const dim3 grid(static_cast<unsigned>(n_splits), grid_of(a.n_heads, kHeads), static_cast<unsigned>(a.n_rows));
  const Partials partials{partial, a.head_dim};
  switch (a.head_dim) {
    case 32:
      split_kernel<1><<<grid, kHeads * kWarp, 0, stream>>>(a, max_window, partials);
      break;
    case 64:
      split_kernel<2><<<grid, kHeads * kWarp, 0, stream>>>(a, max_window, partials);
      break;
    case 128:
      split_kernel<4><<<grid, kHeads * kWarp, 0, stream>>>(a, max_window, partials);
      break;
    case 256:
      split_kernel<8><<<grid, kHeads * kWarp, 0, stream>>>(a, max_window, partials);
      break;
    case 512:
      split_kernel<16><<<grid, kHeads * kWarp, 0, stream>>>(a, max_window, partials);
      break;
    default:
      return fail(Code::kUsage, "sparse_attention", "no instance for head_dim " + std::to_string(a.head_dim));
  }
  DSF_OK(launched("sparse_attention"));
  return join_splits(a, partials, n_splits, rotation, stream);
}

Result<void> join_splits(const SparseAttentionArgs& a, const Partials& partials, int64_t n_splits, const OutputRotation& rotation, CudaStream stream) {
  if (n_splits > kMaxSplits)
    return fail(Code::kUsage, "sparse_attention", "no instance for " + std::to_string(n_splits) + " splits");
  const dim3 grid(static_cast<unsigned>(a.n_heads), static_cast<unsigned>(a.n_rows));
  return launch_after(join_kernel, stream, grid, kJoinThreads, 0, a, static_cast<int>(n_splits), partials, rotation);
}

}  // namespace dsf::serve::ops
