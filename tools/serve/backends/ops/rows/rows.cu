// Moving rows: embedding look-up, scatter into caches, gather, stream mean. One block per row. Limit: bandwidth.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__global__ void embed_kernel(const float* table, const uint16_t* table_bf16, const int32_t* tokens, float* x, float* pre, int64_t n_streams, int64_t dim) {
  const int64_t row = blockIdx.x, token = tokens[row];
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
    const float v = table_bf16 != nullptr ? __uint_as_float(uint32_t{table_bf16[token * dim + d]} << 16) : table[token * dim + d];
    for (int64_t s = 0; s < n_streams; ++s) x[(row * n_streams + s) * dim + d] = v;
  }
  if (threadIdx.x < n_streams) pre[row * n_streams + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
}

__global__ void scatter_kernel(const float* from, const int64_t* place, float* to, int64_t dim) {
  start_after_previous();
  const int64_t row = blockIdx.x, target = place[row];
  if (target < 0) return;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) to[target * dim + d] = from[row * dim + d];
}

__global__ void gather_kernel(const float* from, const int64_t* place, float* to, int64_t dim) {
  start_after_previous();
  const int64_t row = blockIdx.x, source = place[row];
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) to[row * dim + d] = from[source * dim + d];
}

__global__ void stream_mean_kernel(const float* x, float* to, int64_t n_streams, int64_t dim, int64_t to_stride) {
  const int64_t row = blockIdx.x;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
    float sum = 0;
    for (int64_t s = 0; s < n_streams; ++s) sum += x[(row * n_streams + s) * dim + d];
    to[row * to_stride + d] = sum / static_cast<float>(n_streams);
  }
}

}  // namespace

Result<void> embed_cuda(const float* table, const uint16_t* table_bf16, const int32_t* tokens, float* x, float* pre, int64_t n_rows, int64_t n_streams, int64_t dim,
                        CudaStream stream) {
  if (n_rows == 0) return {};
  embed_kernel<<<static_cast<unsigned>(n_rows), kThreads, 0, stream>>>(table, table_bf16, tokens, x, pre, n_streams, dim);
  return launched("embed");
}

Result<void> scatter_rows_cuda(const float* from, const int64_t* place, float* to, int64_t n_rows, int64_t dim, CudaStream stream) {
  if (n_rows == 0) return {};
  return launch_after(scatter_kernel, stream, dim3(static_cast<unsigned>(n_rows)), kThreads, 0, from, place, to, dim);
}

Result<void> gather_rows_cuda(const float* from, const int64_t* place, float* to, int64_t n_rows, int64_t dim, CudaStream stream) {
  if (n_rows == 0) return {};
  return launch_after(gather_kernel, stream, dim3(static_cast<unsigned>(n_rows)), kThreads, 0, from, place, to, dim);
}

Result<void> stream_mean_cuda(const float* x, float* to, int64_t n_rows, int64_t n_streams, int64_t dim, int64_t to_stride, CudaStream stream) {
  if (n_rows == 0) return {};
  stream_mean_kernel<<<static_cast<unsigned>(n_rows), kThreads, 0, stream>>>(x, to, n_streams, dim, to_stride);
  return launched("stream_mean");
}

}  // namespace dsf::serve::ops
