// One block per row, of up to two matrices side by side; a row stays in registers between its sum and its result, and its last values may be rotated.
// Limit: launch and bandwidth; bytes moved 8 per element.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 512;
constexpr int kMostHeld = 10;  // values a thread

struct Tasks {
  NormRows task[2];
};

// v: the value at d of the row, other: that at d ^ 1.
__device__ float rotated(float v, float other, float angle, bool second) {
  float s, c;
  sincosf(angle, &s, &c);
  return second ? other * s + v * c : v * c - other * s;
}

template <int Held>
__global__ void __launch_bounds__(kThreads, 1) norm_kernel(const __grid_constant__ Tasks tasks) {
  __shared__ float scratch[kThreads / kWarp];
  const NormRows& a = tasks.task[blockIdx.y];
  const int64_t row = blockIdx.x;
  const int dim = static_cast<int>(a.norm.dim), rope_begin = dim - static_cast<int>(a.rope_dim), thread = static_cast<int>(threadIdx.x);
  int at[Held];  // the last value stands in where there is none, so that all loads are on their way at once
  float x[Held], w[Held], freq[Held], sum = 0;
  release_next();
#pragma unroll
  for (int i = 0; i < Held; ++i) {
    at[i] = min(i * kThreads + thread, dim - 1);
    w[i] = __ldg(a.norm.w + at[i]);
    freq[i] = at[i] >= rope_begin ? __ldg(a.freq + (at[i] - rope_begin) / 2) : 0.0f;
  }
  wait_for_previous();
  if (row >= a.norm.n_rows) return;
  const auto position = a.rope_dim > 0 ? static_cast<float>(a.positions[row]) : 0.0f;
#pragma unroll
  for (int i = 0; i < Held; ++i) x[i] = a.norm.x[row * dim + at[i]];
#pragma unroll
  for (int i = 0; i < Held; ++i) sum += i * kThreads + thread < dim ? x[i] * x[i] : 0.0f;
  const float rs = rsqrtf(block_sum<kThreads>(sum, scratch) / static_cast<float>(dim) + a.norm.eps);
#pragma unroll
  for (int i = 0; i < Held; ++i) {
    float v = w[i] * (x[i] * rs);
    const float other = __shfl_xor_sync(0xffffffffu, v, 1);
    if (at[i] >= rope_begin) v = rotated(v, other, position * freq[i], (at[i] - rope_begin) % 2 != 0);
    if (i * kThreads + thread < dim) a.norm.y[row * dim + at[i]] = v;
  }
}

}  // namespace

Result<void> norm_rows_cuda(std::span<const NormRows> tasks, CudaStream stream) {
  Tasks all{};
  int64_t rows = 0, dim = 0;
  if (tasks.empty() || tasks.size() > std::size(all.task)) return fail(Code::kBug, "norm_rows", "one or two matrices");
  for (size_t i = 0; i < tasks.size(); ++i) {
    const RmsNormArgs& n = tasks[i].norm;
    if (n.dim > kMostHeld * kThreads || tasks[i].rope_dim > n.dim || tasks[i].rope_dim % 2 != 0 || (tasks[i].rope_dim > 0 && n.dim % 2 != 0))
      return fail(Code::kUsage, "norm_rows", "no instance for width " + std::to_string(n.dim));
    all.task[i] = tasks[i];
    rows = std::max(rows, n.n_rows), dim = std::max(dim, n.dim);
  }
  if (rows == 0) return {};
  auto* const kernel = dim <= kThreads ? norm_kernel<1> : dim <= 3 * kThreads ? norm_kernel<3> : norm_kernel<kMostHeld>;
  return launch_after(kernel, stream, dim3(static_cast<unsigned>(rows), static_cast<unsigned>(tasks.size())), kThreads, 0, all);
}

Result<void> rmsnorm_cuda(const RmsNormArgs& a, CudaStream stream) {
  const NormRows task{.norm = a};
  return norm_rows_cuda({&task, 1}, stream);
}

}  // namespace dsf::serve::ops
