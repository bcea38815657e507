// One block per record, a thread per value. Limit: launch at one row; bandwidth, five bytes a value.
#include <cuda_fp8.h>

#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) engram_rows_kernel(EngramRowsArgs a) {
  const uint8_t* record = a.records + int64_t{blockIdx.x} * (a.head_dim + a.head_dim / 32);
  float* to = a.values + int64_t{blockIdx.x} * a.head_dim;
  for (int64_t j = threadIdx.x; j < a.head_dim; j += kThreads) {
    const __nv_fp8_storage_t code = record[j];
    to[j] = __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))) *
            __uint_as_float(uint32_t{record[a.head_dim + j / 32]} << 23);
  }
}

}  // namespace

Result<void> engram_rows_cuda(const EngramRowsArgs& a, CudaStream stream) {
  if (a.n_records == 0) return {};
  engram_rows_kernel<<<static_cast<unsigned>(a.n_records), kThreads, 0, stream>>>(a);
  return launched("engram_rows");
}

}  // namespace dsf::serve::ops
