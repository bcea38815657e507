// Dense linear with f32 weights (16-bit ones: linear_mma.cu): a warp per output, lanes along the input in 8-value steps, Rows rows share the
// weight's loads.
// The order of additions of one result does not depend on the number of rows. Limit: weight bandwidth up to about 8 rows.
#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kStep = 8;

struct Eight {
  float v[kStep];
};
__device__ Eight load8(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

template <int Rows>
__global__ void __launch_bounds__(kThreads) linear_kernel(LinearArgs a, const float* weight, LinearGroups groups) {
  a.x += blockIdx.z * groups.x_step;
  a.y += blockIdx.z * groups.y_step;
  weight += blockIdx.z * a.out * a.in;
  const int64_t o = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t row0 = int64_t{blockIdx.y} * Rows;
  if (o >= a.out) return;
  float sum[Rows] = {};
  for (int64_t i = lane * kStep; i < a.in; i += kWarp * kStep) {
    const Eight w = load8(weight + o * a.in + i);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (row0 + r >= a.n_rows) break;
      const Eight x = load8(a.x + (row0 + r) * a.x_stride + i);
#pragma unroll
      for (int j = 0; j < kStep; ++j) sum[r] = fmaf(x.v[j], w.v[j], sum[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const float total = warp_sum(sum[r]);
    if (lane == 0 && row0 + r < a.n_rows) a.y[(row0 + r) * a.y_stride + o] = total;
  }
}

void launch_linear(const LinearArgs& a, const LinearGroups& groups, CudaStream stream) {
  const unsigned outs = grid_of(a.out, kThreads / kWarp), count = static_cast<unsigned>(groups.count);
  if (a.n_rows == 1) {
    linear_kernel<1><<<dim3(outs, 1, count), kThreads, 0, stream>>>(a, a.w, groups);
  } else if (a.n_rows <= 4) {
    linear_kernel<4><<<dim3(outs, 1, count), kThreads, 0, stream>>>(a, a.w, groups);
  } else {
    linear_kernel<8><<<dim3(outs, grid_of(a.n_rows, 8), count), kThreads, 0, stream>>>(a, a.w, groups);
  }
}

}  // namespace

Result<void> linear_weights_cuda(const LinearArgs& a, const HalfWeights& w, CudaStream stream, const LinearGroups& groups) {
  if (a.in % kStep != 0 || a.x_stride % 4 != 0 || groups.x_step % 4 != 0)
    return fail(Code::kUsage, "linear", "input width " + std::to_string(a.in) + " (stride " + std::to_string(a.x_stride) + ") is not a multiple of 8 (4)");
  if (a.n_rows == 0 || a.out == 0) return {};
  if (w.bf16 != nullptr || w.f16 != nullptr) return linear_mma_cuda(a, w, stream, groups);
  launch_linear(a, groups, stream);
  return launched("linear");
}

Result<void> linear_cuda(const LinearArgs& a, const uint16_t* w_bf16, CudaStream stream, const LinearGroups& groups) {
  return linear_weights_cuda(a, {.bf16 = w_bf16}, stream, groups);
}

}  // namespace dsf::serve::ops
