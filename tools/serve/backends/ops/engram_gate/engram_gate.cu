// One block per row and stream. Limit: launch.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) engram_gate_kernel(EngramGateArgs a) {
  __shared__ float scratch[kThreads / kWarp];
  const int64_t row = blockIdx.x, s = blockIdx.y, n = a.dim;
  float* x = a.x + (row * a.n_streams + s) * n;
  const float* key = a.kv + (row * (a.n_streams + 1) + s) * n;
  const float* value = a.kv + (row * (a.n_streams + 1) + a.n_streams) * n;
  float dot = 0, xx = 0, kk = 0;
  for (int64_t d = threadIdx.x; d < n; d += kThreads) {
    dot += (x[d] * a.q_weight[s * n + d]) * (key[d] * a.k_weight[s * n + d]);
    xx += x[d] * x[d];
    kk += key[d] * key[d];
  }
  const auto inverse_rms = [&](float squares) { return rsqrtf(squares / static_cast<float>(n) + a.eps); };
  const float d0 = block_sum<kThreads>(dot, scratch) * inverse_rms(block_sum<kThreads>(xx, scratch)) * inverse_rms(block_sum<kThreads>(kk, scratch)) /
                   sqrtf(static_cast<float>(n));
  const float root = sqrtf(fmaxf(fabsf(d0), 1e-6f));
  const float gate = a.dead != nullptr && a.dead[row] != 0 ? 0.0f : sigmoid(d0 < 0 ? -root : root);
  for (int64_t d = threadIdx.x; d < n; d += kThreads) x[d] += gate * value[d];
}

}  // namespace

Result<void> engram_gate_cuda(const EngramGateArgs& a, CudaStream stream) {
  if (a.n_rows == 0) return {};
  engram_gate_kernel<<<dim3(static_cast<unsigned>(a.n_rows), static_cast<unsigned>(a.n_streams)), kThreads, 0, stream>>>(a);
  return launched("engram_gate");
}

}  // namespace dsf::serve::ops
