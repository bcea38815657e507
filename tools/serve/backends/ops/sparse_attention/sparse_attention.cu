// Split attention: a list (window, then selection) is cut every kSplit entries at fixed places, so that the result of a
// row depends on its own list only. Grid (splits, head groups, rows): a warp per head, lanes along head_dim. K and V
// are one vector: loaded once, used twice. Then one block per (row, head) joins the splits in order. Limit: L1
// bandwidth (each of the heads reads every row).
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
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

// A split without entries has weight 0 and is not read.
__global__ void __launch_bounds__(kJoinThreads) join_kernel(SparseAttentionArgs a, int n_splits, Partials partials) {
  __shared__ float weight[kMaxSplits];
  const int64_t head = blockIdx.x, row = blockIdx.y;
  float m = kNever;
  for (int s = 0; s < n_splits; ++s) m = fmaxf(m, partials.at(a, row, head, s, n_splits)[0]);
  float* out = a.out + (row * a.n_heads + head) * a.head_dim;
  if (m == kNever) {
    for (int64_t d = threadIdx.x; d < a.head_dim; d += kJoinThreads) out[d] = 0;
    return;
  }
  for (int s = threadIdx.x; s < n_splits; s += kJoinThreads)
    weight[s] = expf(partials.at(a, row, head, s, n_splits)[0] - m);
  __syncthreads();
  float l = 0;
  for (int s = 0; s < n_splits; ++s) l += partials.at(a, row, head, s, n_splits)[1] * weight[s];
  const float scale = 1.0f / (l + expf(a.sink[head] - m));
  for (int64_t d = threadIdx.x; d < a.head_dim; d += kJoinThreads) {
    float sum = 0;
    for (int s = 0; s < n_splits; ++s) {
      if (weight[s] > 0) sum = fmaf(weight[s], partials.at(a, row, head, s, n_splits)[2 + d], sum);
    }
    out[d] = sum * scale;
  }
}

}  // namespace

int64_t sparse_attention_workspace(int64_t n_rows, int64_t n_heads, int64_t head_dim, int64_t max_window,
                                   int64_t n_selected) {
  return n_rows * n_heads * splits_of(max_window, n_selected) * (head_dim + 2);
}

Result<void> sparse_attention_cuda(const SparseAttentionArgs& a, int64_t max_window, float* partial,
                                   CudaStream stream) {
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
  return join_splits(a, partials, n_splits, stream);
}

Result<void> join_splits(const SparseAttentionArgs& a, const Partials& partials, int64_t n_splits, CudaStream stream) {
  if (n_splits > kMaxSplits)
    return fail(Code::kUsage, "sparse_attention", "no instance for " + std::to_string(n_splits) + " splits");
  join_kernel<<<dim3(static_cast<unsigned>(a.n_heads), static_cast<unsigned>(a.n_rows)), kJoinThreads, 0, stream>>>(
      a, static_cast<int>(n_splits), partials);
  return launched("sparse_attention");
}

}  // namespace dsf::serve::ops
