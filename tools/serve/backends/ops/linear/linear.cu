// Dense linear with f32, bf16 or fp16 weights: a warp, or for few outputs the four warps of a thread block, per output; lanes along the input in
// 8-value steps, Rows rows share the weight's loads. The order of additions of one result depends on the matrix shape alone, not on the
// number of rows. Limit: weight bandwidth up to about 8 rows.
#include <cuda_fp16.h>

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
__device__ Eight load8(const uint16_t* p) {
  const uint4 u = *reinterpret_cast<const uint4*>(p);
  const uint32_t words[4] = {u.x, u.y, u.z, u.w};
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.v[2 * i] = __uint_as_float(words[i] << 16);
    out.v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return out;
}

__device__ Eight load8(const __half* p) {
  const uint4 u = *reinterpret_cast<const uint4*>(p);
  const uint32_t words[4] = {u.x, u.y, u.z, u.w};
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    out.v[2 * i] = f.x, out.v[2 * i + 1] = f.y;
  }
  return out;
}

// Parts: warps that share an output, 1 or 4.
template <int Rows, int Parts, class W>
__global__ void __launch_bounds__(kThreads) linear_kernel(LinearArgs a, const W* weight, LinearGroups groups) {
  a.x += blockIdx.z * groups.x_step;
  a.y += blockIdx.z * groups.y_step;
  weight += blockIdx.z * a.out * a.in;
  constexpr int kWarps = kThreads / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t o = int64_t{blockIdx.x} * (kWarps / Parts) + warp / Parts;
  const int64_t row0 = int64_t{blockIdx.y} * Rows;
  float sum[Rows] = {};
  if (o < a.out) {
#pragma unroll 4
    for (int64_t i = (warp % Parts * kWarp + lane) * kStep; i < a.in; i += Parts * kWarp * kStep) {
      const Eight w = load8(weight + o * a.in + i);
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        if (row0 + r >= a.n_rows) break;
        const Eight x = load8(a.x + (row0 + r) * a.x_stride + i);
#pragma unroll
        for (int j = 0; j < kStep; ++j) sum[r] = fmaf(x.v[j], w.v[j], sum[r]);
      }
    }
  }
  __shared__ float part[kWarps][Rows];
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    sum[r] = warp_sum(sum[r]);
    if (Parts > 1 && lane == 0) part[warp][r] = sum[r];
  }
  if constexpr (Parts > 1) __syncthreads();
  if (lane != 0 || warp % Parts != 0 || o >= a.out) return;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    float total = sum[r];
    for (int p = 1; p < Parts; ++p) total += part[warp + p][r];
    if (row0 + r < a.n_rows) a.y[(row0 + r) * a.y_stride + o] = total;
  }
}

template <int Parts, class W>
void launch_parts(const LinearArgs& a, const W* weight, const LinearGroups& groups, CudaStream stream) {
  const unsigned outs = grid_of(a.out, kThreads / kWarp / Parts), count = static_cast<unsigned>(groups.count);
  if (a.n_rows == 1) {
    linear_kernel<1, Parts><<<dim3(outs, 1, count), kThreads, 0, stream>>>(a, weight, groups);
  } else if (a.n_rows <= 4) {
    linear_kernel<4, Parts><<<dim3(outs, 1, count), kThreads, 0, stream>>>(a, weight, groups);
  } else {
    linear_kernel<8, Parts><<<dim3(outs, grid_of(a.n_rows, 8), count), kThreads, 0, stream>>>(a, weight, groups);
  }
}

template <class W>
void launch_linear(const LinearArgs& a, const W* weight, const LinearGroups& groups, CudaStream stream) {
  const bool few = a.out * groups.count <= 2048 && a.in >= 4 * kWarp * kStep;  // not enough warps to keep the memory busy
  if (few) launch_parts<4>(a, weight, groups, stream);
  else launch_parts<1>(a, weight, groups, stream);
}

}  // namespace

Result<void> linear_weights_cuda(const LinearArgs& a, const HalfWeights& w, CudaStream stream, const LinearGroups& groups) {
  if (a.in % kStep != 0 || a.x_stride % 4 != 0 || groups.x_step % 4 != 0)
    return fail(Code::kUsage, "linear", "input width " + std::to_string(a.in) + " (stride " + std::to_string(a.x_stride) + ") is not a multiple of 8 (4)");
  if (a.n_rows == 0 || a.out == 0) return {};
  if (w.bf16 != nullptr) launch_linear(a, w.bf16, groups, stream);
  else if (w.f16 != nullptr) launch_linear(a, reinterpret_cast<const __half*>(w.f16), groups, stream);
  else launch_linear(a, a.w, groups, stream);
  return launched("linear");
}

Result<void> linear_cuda(const LinearArgs& a, const uint16_t* w_bf16, CudaStream stream, const LinearGroups& groups) {
  return linear_weights_cuda(a, {.bf16 = w_bf16}, stream, groups);
}

}  // namespace dsf::serve::ops
