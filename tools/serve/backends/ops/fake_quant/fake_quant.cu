// One lane per value, a warp (FQ8, FQ4i) or half a warp (FQ4k) per block of the format. Bit-equal to the oracle: every step is exact or one
// IEEE operation. Limit: bandwidth.
#include <cuda_fp8.h>

#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__device__ float round_e4m3(float v) {
  const __nv_fp8_storage_t code = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// Nearest of 0 .5 1 1.5 2 3 4 6, ties to the even code.
__device__ float round_e2m1(float v) {
  const float a = fabsf(v);
  float r = 0.0f;
  if (a > 0.25f) r = 0.5f;
  if (a >= 0.75f) r = 1.0f;
  if (a > 1.25f) r = 1.5f;
  if (a >= 1.75f) r = 2.0f;
  if (a > 2.5f) r = 3.0f;
  if (a >= 3.5f) r = 4.0f;
  if (a > 5.0f) r = 6.0f;
  return copysignf(r, v);
}

__device__ float ceil_power_of_two_device(float f) {
  const uint32_t bits = __float_as_uint(f);
  return __uint_as_float(((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u)) << 23);
}

template <FakeQuant Format>
__global__ void __launch_bounds__(kThreads) fake_quant_kernel(float* x, int64_t n) {
  constexpr int kBlock = Format == FakeQuant::kCompressed ? 16 : 32;
  start_after_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float v = i < n ? x[i] : 0.0f;  // n is a multiple of the block: a block is inside or outside as a whole
  float amax = fabsf(v);
#pragma unroll
  for (int mask = kBlock / 2; mask > 0; mask /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
  float scale, q;
  if constexpr (Format == FakeQuant::kWindow) {
    scale = ceil_power_of_two_device(fmaxf(amax, 1e-4f) * (1.0f / 448.0f));
    q = round_e4m3(__fdiv_rn(v, scale));
  } else if constexpr (Format == FakeQuant::kCompressed) {
    scale = round_e4m3(__fdiv_rn(fmaxf(amax, 6.0f * 0x1p-9f), 6.0f));
    q = round_e2m1(fminf(fmaxf(__fdiv_rn(v, scale), -6.0f), 6.0f));
  } else {
    scale = ceil_power_of_two_device(fmaxf(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f));
    q = round_e2m1(fminf(fmaxf(__fdiv_rn(v, scale), -6.0f), 6.0f));
  }
  if (i < n) x[i] = q * scale;  // exact in bf16 already
}

}  // namespace

Result<void> fake_quant_cuda(const FakeQuantArgs& a, CudaStream stream) {
  if (a.n == 0) return {};
  auto* const kernel = a.format == FakeQuant::kWindow       ? fake_quant_kernel<FakeQuant::kWindow>
                       : a.format == FakeQuant::kCompressed ? fake_quant_kernel<FakeQuant::kCompressed>
                                                            : fake_quant_kernel<FakeQuant::kIndex>;
  return launch_after(kernel, stream, dim3(grid_of(a.n, kThreads)), kThreads, 0, a.x, a.n);
}

}  // namespace dsf::serve::ops
