// Two kernels. Key: S streams, M = (2+S)*S mix values.
//
//   expand_mix   grid (slices of 128 channels, row groups): writes the expanded streams of its channels and, per row, its share of the M dot
//                products and of the sum of squares: partial [row, slice, M + 1]
//   finish       one block per row: adds the shares in slice order; warp 0 runs Sinkhorn while the others collapse and normalise
//
// Limit at one row: latency; fn is 2 MB from L2 per call. At many rows: fn from L2, read once per kRows rows.
#include "dsf/base/check.h"
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kS = 4;
constexpr int kM = (2 + kS) * kS;
constexpr int kSlice = 128;      // channels, and threads, per block of expand_mix
constexpr int kFinish = 1024;    // threads of finish: 25 warps add the shares of one value each
constexpr int kWarps = kSlice / kWarp;

struct Streams {
  float v[kS];
};

__device__ Streams load_streams(const HyperStepArgs& a, int64_t row, int64_t d) {
  Streams x;
#pragma unroll
  for (int s = 0; s < kS; ++s) x.v[s] = a.x[(row * kS + s) * a.dim + d];
  return x;
}

__device__ Streams expand(const HyperStepArgs& a, int64_t row, int64_t d, const Streams& old) {
  const float y = a.y[row * a.dim + d];
  Streams x;
#pragma unroll
  for (int k = 0; k < kS; ++k) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kS; ++j) sum += a.comb_in[(row * kS + j) * kS + k] * old.v[j];
    x.v[k] = a.post_in[row * kS + k] * y + sum;
    a.x[(row * kS + k) * a.dim + d] = x.v[k];
  }
  return x;
}

template <int Rows>
__global__ void __launch_bounds__(kSlice) expand_mix_kernel(HyperStepArgs a, float* partial) {
  __shared__ float shares[kWarps][kM + 1];
  const int64_t d = int64_t{blockIdx.x} * kSlice + threadIdx.x;
  const bool inside = d < a.dim;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Streams x[Rows] = {};
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int64_t row = int64_t{blockIdx.y} * Rows + r;
    if (!inside || row >= a.n_rows) continue;
    x[r] = load_streams(a, row, d);
    if (a.y != nullptr) x[r] = expand(a, row, d, x[r]);
  }
  if (a.fn == nullptr) return;

  float sums[Rows][kM + 1];
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    float squares = 0;
#pragma unroll
    for (int s = 0; s < kS; ++s) squares += x[r].v[s] * x[r].v[s];
    sums[r][kM] = squares;
  }
#pragma unroll
  for (int j = 0; j < kM; ++j) {
    float w[kS];
#pragma unroll
    for (int s = 0; s < kS; ++s) w[s] = inside ? a.fn[(int64_t{j} * kS + s) * a.dim + d] : 0.0f;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kS; ++s) sum += x[r].v[s] * w[s];
      sums[r][j] = sum;
    }
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int64_t row = int64_t{blockIdx.y} * Rows + r;
    for (int j = 0; j <= kM; ++j) {
      const float v = warp_sum(sums[r][j]);
      if (lane == 0) shares[warp][j] = v;
    }
    __syncthreads();
    if (threadIdx.x <= kM && row < a.n_rows) {
      float v = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) v += shares[w][threadIdx.x];
      partial[(row * gridDim.x + blockIdx.x) * (kM + 1) + threadIdx.x] = v;
    }
    __syncthreads();
  }
}

// m: the M mix values. Lanes 0..15 hold the 4x4 matrix C[j][k], j = lane / 4.
__device__ void finish_mix(const HyperStepArgs& a, int64_t row, const float* m, int lane) {
  if (lane < kS) {
    a.pre[row * kS + lane] = sigmoid(m[lane] * a.scale[0] + a.base[lane]) + a.hc_eps;
    a.post[row * kS + lane] = 2.0f * sigmoid(m[kS + lane] * a.scale[1] + a.base[kS + lane]);
  }
  const int i = lane % (kS * kS);  // the upper half repeats the lower one, so that every shuffle has all lanes
  float c = m[2 * kS + i] * a.scale[2] + a.base[2 * kS + i];
  const auto row_sum = [](float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
  };
  const auto column_sum = [](float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 4);
    return v + __shfl_xor_sync(0xffffffffu, v, 8);
  };
  float top = fmaxf(c, __shfl_xor_sync(0xffffffffu, c, 1));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  c = expf(c - top);
  c = c / row_sum(c) + a.hc_eps;
  c = c / (column_sum(c) + a.hc_eps);
  for (int64_t sweep = 1; sweep < a.sinkhorn_iters; ++sweep) {
    c = c / (row_sum(c) + a.hc_eps);
    c = c / (column_sum(c) + a.hc_eps);
  }
  if (lane < kS * kS) a.comb[row * kS * kS + lane] = c;
}

__global__ void __launch_bounds__(kFinish) finish_kernel(HyperStepArgs a, const float* partial, int n_slices) {
  __shared__ float m[kM + 1];
  __shared__ float scratch[kFinish / kWarp];
  const int64_t row = blockIdx.x;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (a.fn != nullptr && warp <= kM) {
    float v = 0;
    for (int i = lane; i < n_slices; i += kWarp) v += partial[(row * n_slices + i) * (kM + 1) + warp];
    v = warp_sum(v);
    if (lane == 0) m[warp] = v;
  }

  float pre[kS];
#pragma unroll
  for (int s = 0; s < kS; ++s) pre[s] = a.pre_in[row * kS + s];
  float squares = 0;
  for (int64_t d = threadIdx.x; d < a.dim; d += kFinish) {
    float v = 0;
#pragma unroll
    for (int s = 0; s < kS; ++s) v += pre[s] * a.x[(row * kS + s) * a.dim + d];
    a.out[row * a.dim + d] = v;
    squares += v * v;
  }
  const float rs = rsqrtf(block_sum<kFinish>(squares, scratch) / static_cast<float>(a.dim) + a.norm_eps);
  if (a.fn != nullptr && warp == 0) {
    const float scale = rsqrtf(m[kM] / static_cast<float>(kS * a.dim) + a.norm_eps);
    if (lane < kM) m[lane] *= scale;
    __syncwarp();
    finish_mix(a, row, m, lane);
  }
  for (int64_t d = threadIdx.x; d < a.dim; d += kFinish) a.out[row * a.dim + d] = a.norm[d] * (a.out[row * a.dim + d] * rs);
}

}  // namespace

int64_t hyper_step_workspace(int64_t n_rows, int64_t dim) { return n_rows * ((dim + kSlice - 1) / kSlice) * (kM + 1); }

Result<void> hyper_step_cuda(const HyperStepArgs& a, float* partial, CudaStream stream) {
  if (a.n_streams != kS) return fail(Code::kUsage, "hyper_step", "built for hc_mult 4, got " + std::to_string(a.n_streams));
  if (a.n_rows == 0) return {};
  const unsigned slices = grid_of(a.dim, kSlice);
  if (a.y != nullptr || a.fn != nullptr) {
    constexpr int kMany = 4;  // rows a block when there are many: fn is read once for all of them
    if (a.n_rows <= 16) {
      expand_mix_kernel<1><<<dim3(slices, static_cast<unsigned>(a.n_rows)), kSlice, 0, stream>>>(a, partial);
    } else {
      expand_mix_kernel<kMany><<<dim3(slices, grid_of(a.n_rows, kMany)), kSlice, 0, stream>>>(a, partial);
    }
    DSF_OK(launched("hyper_step"));
  }
  if (a.out == nullptr) return {};
  finish_kernel<<<static_cast<unsigned>(a.n_rows), kFinish, 0, stream>>>(a, partial, static_cast<int>(slices));
  return launched("hyper_step");
}

}  // namespace dsf::serve::ops
