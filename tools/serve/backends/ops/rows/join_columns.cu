// A thread per value. Limit: memory.
#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) join_columns_kernel(const float* parts, float* to, int64_t world, int64_t n_rows, int64_t width, int64_t total, int64_t unit) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = blockIdx.y;
  if (at >= total) return;
  int64_t w = 0;
  while (w + 1 < world && total / unit * (w + 1) / world * unit <= at) ++w;
  to[row * total + at] = parts[(w * n_rows + row) * width + at - total / unit * w / world * unit];
}

}  // namespace

Result<void> join_columns_cuda(const float* parts, float* to, int64_t world, int64_t n_rows, int64_t width, int64_t total, int64_t unit, CudaStream stream) {
  if (n_rows == 0) return {};
  join_columns_kernel<<<dim3(grid_of(total, kThreads), static_cast<unsigned>(n_rows)), kThreads, 0, stream>>>(parts, to, world, n_rows, width, total, unit);
  return launched("join_columns");
}

}  // namespace dsf::serve::ops
