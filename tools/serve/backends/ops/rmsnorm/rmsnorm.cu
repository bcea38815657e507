// One block per row: two passes over a row that stays in L1. Limit: bandwidth; bytes moved 8 per element.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) rmsnorm_kernel(RmsNormArgs a) {
  __shared__ float scratch[kThreads / kWarp];
  const float* x = a.x + blockIdx.x * a.dim;
  float* y = a.y + blockIdx.x * a.dim;
  float sum = 0;
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) sum += x[d] * x[d];
  const float rs = rsqrtf(block_sum<kThreads>(sum, scratch) / static_cast<float>(a.dim) + a.eps);
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) y[d] = a.w[d] * (x[d] * rs);
}

}  // namespace

Result<void> rmsnorm_cuda(const RmsNormArgs& a, CudaStream stream) {
  if (a.n_rows == 0) return {};
  rmsnorm_kernel<<<static_cast<unsigned>(a.n_rows), kThreads, 0, stream>>>(a);
  return launched("rmsnorm");
}

}  // namespace dsf::serve::ops
