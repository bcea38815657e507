// Two kernels. Key: S streams, M = (2+S)*S mix values.
//
//   expand_mix   grid (slices of 128 channels, row groups): writes the expanded streams of its channels and, per row, its share of the M dot
//                products and of the sum of squares: partial [row, slice, M + 1]
//   finish       two blocks per row: one collapses and normalises, one adds the shares in slice order and runs Sinkhorn, in one thread
//
// Limit at one row: latency; fn is 2 MB from L2 per call, asked for before the kernel in front has ended. At many rows: fn from L2, read once per
// kRows rows.
#include "dsf/base/check.h"
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kS = 4;
constexpr int kM = (2 + kS) * kS;
constexpr int kSlice = 128;      // channels, and threads, per block of expand_mix
constexpr int kFinish = 1024;    // threads of finish: 25 warps add the shares of one value each
constexpr int kHeld = 5;         // channels that a thread of finish holds
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
  float comb[kS][kS], post[kS];  // all loads before the first store
#pragma unroll
  for (int j = 0; j < kS; ++j) {
    post[j] = a.post_in[row * kS + j];
#pragma unroll
    for (int k = 0; k < kS; ++k) comb[j][k] = a.comb_in[(row * kS + j) * kS + k];
  }
  Streams x;
#pragma unroll
  for (int k = 0; k < kS; ++k) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kS; ++j) sum += comb[j][k] * old.v[j];
    x.v[k] = post[k] * y + sum;
    a.x[(row * kS + k) * a.dim + d] = x.v[k];
  }
  return x;
}

// Lane i gets the sum of v[i] over the warp: 31 shuffles for all 32 values.
template <int Half = kWarp / 2>
__device__ inline float sum_of_lane(float (&v)[kWarp], int lane) {
  const bool upper = (lane & Half) != 0;
#pragma unroll
  for (int i = 0; i < Half; ++i) v[i] = (upper ? v[i + Half] : v[i]) + __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + Half], Half);
  if constexpr (Half > 1) return sum_of_lane<Half / 2>(v, lane);
  else return v[0];
}

template <int Rows>
__global__ void __launch_bounds__(kSlice) expand_mix_kernel(HyperStepArgs a, float* partial) {
  __shared__ float shares[kWarps][kM + 1];
  const int64_t d = int64_t{blockIdx.x} * kSlice + threadIdx.x;
  const bool inside = d < a.dim;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  // One row: its part of fn, constant data, is on its way before the kernel in front has ended.
  constexpr bool kAhead = Rows == 1;
  float ahead[kAhead ? kM : 1][kS];
  release_next();
  if (kAhead && a.fn != nullptr) {
#pragma unroll
    for (int j = 0; j < (kAhead ? kM : 1); ++j)
#pragma unroll
      for (int s = 0; s < kS; ++s) ahead[j][s] = inside ? __ldg(a.fn + (int64_t{j} * kS + s) * a.dim + d) : 0.0f;
  }
  wait_for_previous();
  Streams x[Rows] = {};
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int64_t row = int64_t{blockIdx.y} * Rows + r;
    if (!inside || row >= a.n_rows) continue;
    x[r] = load_streams(a, row, d);
    if (a.y != nullptr) x[r] = expand(a, row, d, x[r]);
  }
  if (a.fn == nullptr) return;

  float sums[Rows][kWarp] = {};
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
    for (int s = 0; s < kS; ++s) w[s] = kAhead ? ahead[kAhead ? j : 0][s] : inside ? a.fn[(int64_t{j} * kS + s) * a.dim + d] : 0.0f;
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
    const float share = sum_of_lane(sums[r], lane);
    if (lane <= kM) shares[warp][lane] = share;
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

__device__ inline float reciprocal(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// c[4j + k] of every row (k) or column (j) divided by its sum. An approximate reciprocal does: the next sweep takes its error out again.
template <int Along, int Across>
__device__ inline void normalise(float (&c)[kS * kS], float eps) {
#pragma unroll
  for (int i = 0; i < kS; ++i) {
    float* const v = c + i * Across;
    const float r = reciprocal((v[0] + v[Along]) + (v[2 * Along] + v[3 * Along]) + eps);
#pragma unroll
    for (int j = 0; j < kS; ++j) v[j * Along] *= r;
  }
}

// m: the M mix values, scaled and shifted. One thread: a shuffle costs more than the whole matrix's additions.
__device__ void mix_streams(const HyperStepArgs& a, int64_t row, const float* m) {
  float c[kS * kS];
#pragma unroll
  for (int i = 0; i < kS * kS; ++i) c[i] = m[2 * kS + i];
#pragma unroll
  for (int j = 0; j < kS; ++j) {
    float* const v = c + kS * j;
    const float top = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
#pragma unroll
    for (int k = 0; k < kS; ++k) v[k] = expf(v[k] - top);
    const float r = reciprocal((v[0] + v[1]) + (v[2] + v[3]));
#pragma unroll
    for (int k = 0; k < kS; ++k) v[k] = v[k] * r + a.hc_eps;
  }
  normalise<kS, 1>(c, a.hc_eps);
#pragma unroll 1
  for (int64_t sweep = 1; sweep < a.sinkhorn_iters; ++sweep) {
    normalise<1, kS>(c, a.hc_eps);
    normalise<kS, 1>(c, a.hc_eps);
  }
  float4* const comb = reinterpret_cast<float4*>(a.comb + row * kS * kS);
#pragma unroll
  for (int j = 0; j < kS; ++j) comb[j] = make_float4(c[kS * j], c[kS * j + 1], c[kS * j + 2], c[kS * j + 3]);
}

// m: [kM + 1] in shared memory.
__device__ void finish_mix(const HyperStepArgs& a, int64_t row, const float* partial, int n_slices, float* m) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float own_scale = __ldg(a.scale + min(lane / kS, 2)), own_base = __ldg(a.base + min(lane, kM - 1));
  wait_for_previous();
  if (warp <= kM) {
    float v = 0;
#pragma unroll 2
    for (int i = lane; i < n_slices; i += kWarp) v += partial[(row * n_slices + i) * (kM + 1) + warp];
    v = warp_sum(v);
    if (lane == 0) m[warp] = v;
  }
  __syncthreads();
  if (warp > 0) return;
  const float value = m[min(lane, kM - 1)] * rsqrtf(m[kM] / static_cast<float>(kS * a.dim) + a.norm_eps) * own_scale + own_base;
  __syncwarp();
  if (lane < kM) m[lane] = value;
  __syncwarp();
  if (lane < kS) a.pre[row * kS + lane] = sigmoid(value) + a.hc_eps;
  else if (lane < 2 * kS) a.post[row * kS + lane - kS] = 2.0f * sigmoid(value);
  else if (lane == 2 * kS) mix_streams(a, row, m);
}

__device__ void collapse(const HyperStepArgs& a, int64_t row, float* scratch) {
  const int dim = static_cast<int>(a.dim);
  const float* const from = a.x + row * kS * dim;
  float* const out = a.out + row * dim;
  float pre[kS], x[kHeld][kS], norm[kHeld], v[kHeld];
  int at[kHeld];  // the last channel stands in where there is none, so that all loads are on their way at once
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    at[i] = min(i * kFinish + static_cast<int>(threadIdx.x), dim - 1);
    norm[i] = __ldg(a.norm + at[i]);
  }
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
#pragma unroll
    for (int s = 0; s < kS; ++s) x[i][s] = from[s * dim + at[i]];
#pragma unroll
  for (int s = 0; s < kS; ++s) pre[s] = a.pre_in[row * kS + s];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    v[i] = 0;
#pragma unroll
    for (int s = 0; s < kS; ++s) v[i] += pre[s] * x[i][s];
    squares += i * kFinish + static_cast<int>(threadIdx.x) < dim ? v[i] * v[i] : 0.0f;
  }
  const float rs = rsqrtf(block_sum<kFinish>(squares, scratch) / static_cast<float>(dim) + a.norm_eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (i * kFinish + static_cast<int>(threadIdx.x) < dim) out[at[i]] = norm[i] * (v[i] * rs);
}

// Grid: (1 or, with a mix, 2; rows).
__global__ void __launch_bounds__(kFinish, 1) finish_kernel(HyperStepArgs a, const float* partial, int n_slices) {
  __shared__ float scratch[kFinish / kWarp];
  release_next();
  if (blockIdx.x == 0) collapse(a, blockIdx.y, scratch);
  else finish_mix(a, blockIdx.y, partial, n_slices, scratch);
}

}  // namespace

int64_t hyper_step_workspace(int64_t n_rows, int64_t dim) { return n_rows * ((dim + kSlice - 1) / kSlice) * (kM + 1); }

Result<void> hyper_step_cuda(const HyperStepArgs& a, float* partial, CudaStream stream) {
  if (a.n_streams != kS) return fail(Code::kUsage, "hyper_step", "built for hc_mult 4, got " + std::to_string(a.n_streams));
  if (a.dim > kHeld * kFinish) return fail(Code::kUsage, "hyper_step", "no instance for width " + std::to_string(a.dim));
  if (a.n_rows == 0) return {};
  const unsigned slices = grid_of(a.dim, kSlice);
  if (a.y != nullptr || a.fn != nullptr) {
    constexpr int kMany = 4;  // rows a block when there are many: fn is read once for all of them
    if (a.n_rows <= 16) {
      DSF_OK(launch_after(expand_mix_kernel<1>, stream, dim3(slices, static_cast<unsigned>(a.n_rows)), kSlice, 0, a, partial));
    } else {
      DSF_OK(launch_after(expand_mix_kernel<kMany>, stream, dim3(slices, grid_of(a.n_rows, kMany)), kSlice, 0, a, partial));
    }
  }
  if (a.out == nullptr) return {};
  const dim3 grid(a.fn != nullptr ? 2 : 1, static_cast<unsigned>(a.n_rows));
  return launch_after(finish_kernel, stream, grid, kFinish, 0, a, partial, static_cast<int>(slices));
}

}  // namespace dsf::serve::ops
