// One lane per value, a warp per 32 values: the block's maximum by shuffles, then the byte or, for pairs of lanes, the
// byte of two codes. Every step is exact or one IEEE operation, as in fake_quant. Limit: launch.
#include <cuda_fp8.h>

#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;

__device__ uint32_t e4m3_code(float v) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }
__device__ float e4m3_value(uint32_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3)));
}

// Nearest of 0 .5 1 1.5 2 3 4 6, ties to the even code; above 6 is 6.
__device__ uint32_t e2m1_code(float v) {
  const float a = fabsf(v);
  const uint32_t magnitude =
      (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return magnitude | (__float_as_uint(v) >> 31 << 3);
}

__device__ float ceil_power_of_two_device(float f) {
  const uint32_t bits = __float_as_uint(f);
  return __uint_as_float(((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u)) << 23);
}

template <FakeQuant Format>
__global__ void __launch_bounds__(kThreads) pack_kernel(PackRowsArgs a, int64_t row_bytes, int64_t used_bytes) {
  constexpr int kBlock = Format == FakeQuant::kCompressed ? 16 : 32;
  start_after_previous();
  const int64_t row = blockIdx.y, place = a.place[row], i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place < 0 || i >= a.dim) return;  // dim is a multiple of 32: a warp leaves as a whole
  const float v = a.from[row * a.dim + i];
  float amax = fabsf(v);
#pragma unroll
  for (int mask = kBlock / 2; mask > 0; mask /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
  uint8_t* const to = a.to + place * row_bytes;
  uint8_t* const scales = to + (Format == FakeQuant::kWindow ? a.dim : a.dim / 2);
  uint32_t byte;
  float scale;
  if constexpr (Format == FakeQuant::kCompressed) {
    byte = e4m3_code(__fdiv_rn(fmaxf(amax, 6.0f * 0x1p-9f), 6.0f));
    scale = e4m3_value(byte);
  } else {
    scale = ceil_power_of_two_device(Format == FakeQuant::kWindow ? fmaxf(amax, 1e-4f) * (1.0f / 448.0f)
                                                                  : fmaxf(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f));
    byte = __float_as_uint(scale) >> 23;
  }
  if (i % kBlock == 0) scales[i / kBlock] = static_cast<uint8_t>(byte);
  if (i < row_bytes - used_bytes) to[used_bytes + i] = 0;
  if constexpr (Format == FakeQuant::kWindow) {
    to[i] = static_cast<uint8_t>(e4m3_code(__fdiv_rn(v, scale)));
  } else {
    const uint32_t code = e2m1_code(__fdiv_rn(v, scale)), next = __shfl_xor_sync(0xffffffffu, code, 1);
    if (i % 2 == 0) to[i / 2] = static_cast<uint8_t>(code | next << 4);
  }
}

}  // namespace

Result<void> pack_rows_cuda(const PackRowsArgs& a, CudaStream stream) {
  if (a.dim % 32 != 0)
    return fail(Code::kUsage, "pack_rows", "width " + std::to_string(a.dim) + " is not a multiple of 32");
  if (a.n_rows == 0) return {};
  const dim3 grid(grid_of(a.dim, kThreads), static_cast<unsigned>(a.n_rows));
  const int64_t bytes = packed_row_bytes(a.format, a.dim);
  const int64_t used = packed_value_bytes(a.format, a.dim) + packed_scale_bytes(a.format, a.dim);
  auto* const kernel = a.format == FakeQuant::kWindow       ? pack_kernel<FakeQuant::kWindow>
                       : a.format == FakeQuant::kCompressed ? pack_kernel<FakeQuant::kCompressed>
                                                            : pack_kernel<FakeQuant::kIndex>;
  return launch_after(kernel, stream, grid, kThreads, 0, a, bytes, used);
}

}  // namespace dsf::serve::ops
