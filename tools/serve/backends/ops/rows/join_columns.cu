// A thread per value. Limit: memory.
#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) join_columns_kernel(const __grid_constant__ JoinColumnsArgs a) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = blockIdx.y;
  if (at >= a.total) return;
  int rank = 0;
  while (rank + 1 < a.world && a.begin[rank + 1] <= at) ++rank;
  a.to[row * a.total + at] = a.parts[(rank * a.n_rows + row) * a.width + at - a.begin[rank]];
}

}  // namespace

Result<void> join_columns_cuda(const JoinColumnsArgs& a, CudaStream stream) {
  if (a.world < 1 || a.world > kJoinRanks) return fail(Code::kUsage, "join_columns", "1 to 16 ranks");
  if (a.n_rows == 0) return {};
  join_columns_kernel<<<dim3(grid_of(a.total, kThreads), static_cast<unsigned>(a.n_rows)), kThreads, 0, stream>>>(a);
  return launched("join_columns");
}

}  // namespace dsf::serve::ops
