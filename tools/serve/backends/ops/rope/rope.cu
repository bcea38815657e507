// One thread per rotated pair. Limit: launch and bandwidth. sincosf reduces its f32 argument exactly, which angles near 2^20 need.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArgs a) {
  start_after_previous();
  const int64_t pairs = a.rope_dim / 2;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n_rows * a.n_heads * pairs) return;
  const int64_t pair = i % pairs, head = i / pairs, row = head / a.n_heads;
  float* v = a.x + head * a.head_dim + (a.head_dim - a.rope_dim) + 2 * pair;
  float s, c;
  sincosf(static_cast<float>(a.positions[row]) * a.freq[pair], &s, &c);
  if (a.inverse) s = -s;
  const float x = v[0], y = v[1];
  v[0] = x * c - y * s;
  v[1] = x * s + y * c;
}

}  // namespace

Result<void> rope_cuda(const RopeArgs& a, CudaStream stream) {
  const int64_t n = a.n_rows * a.n_heads * (a.rope_dim / 2);
  if (n == 0) return {};
  return launch_after(rope_kernel, stream, dim3(grid_of(n, kThreads)), kThreads, 0, a);
}

}  // namespace dsf::serve::ops
