// One block per row of the step that may close a group: pool over the group's tokens, then RMSNorm. Limit: launch.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxRatio = 2;

__device__ float pooled(const KvCompressRowsArgs& a, int64_t row, int64_t d) {
  const int64_t position = a.first_position[row], slot = a.ring_offset[row];
  const auto at = [&](const float* ring, int64_t t) { return ring[(slot + (position + t) % a.ring_rows) * a.dim + d]; };
  if (a.ratio == 1) return at(a.value, 0);
  const float g0 = at(a.gate, 0), g1 = at(a.gate, 1), top = fmaxf(g0, g1);
  const float e0 = expf(g0 - top), e1 = expf(g1 - top);
  return e0 / (e0 + e1) * at(a.value, 0) + e1 / (e0 + e1) * at(a.value, 1);
}

__global__ void __launch_bounds__(kThreads) kv_compress_kernel(KvCompressRowsArgs a) {
  __shared__ float scratch[kThreads / kWarp];
  start_after_previous();
  const int64_t row = blockIdx.x;
  float* latent = a.latent + row * a.dim;
  if (a.first_position[row] < 0) {  // closes no group: zeros, so that what follows stays finite
    for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) latent[d] = 0;
    return;
  }
  float squares = 0;
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
    const float v = pooled(a, row, d);
    latent[d] = v;
    squares += v * v;
  }
  const float rs = rsqrtf(block_sum<kThreads>(squares, scratch) / static_cast<float>(a.dim) + a.eps);
  for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) latent[d] = a.norm[d] * (latent[d] * rs);
}

}  // namespace

Result<void> kv_compress_rows_cuda(const KvCompressRowsArgs& a, CudaStream stream) {
  if (a.ratio < 1 || a.ratio > kMaxRatio) return fail(Code::kUsage, "kv_compress", "ratio " + std::to_string(a.ratio) + " is not 1 or 2");
  if (a.n_rows == 0) return {};
  return launch_after(kv_compress_kernel, stream, dim3(static_cast<unsigned>(a.n_rows)), kThreads, 0, a);
}

}  // namespace dsf::serve::ops
