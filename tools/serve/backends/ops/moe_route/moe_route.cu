// The router's logits by linear_cuda, then one thread block per row. Lower expert on ties. Limit: launch.
#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 512;  // one expert each
constexpr int kMaxK = 32;
constexpr int kHeld = kThreads / kWarp;  // experts that a lane of the choosing warp holds

__device__ float softplus(float z) { return z > 20.0f ? z : log1pf(expf(z)); }

// Order-preserving bits, above 0; -0 counts as +0, as a comparison of floats would have it.
__device__ uint32_t ordered_bits(float f) {
  const uint32_t u = __float_as_uint(f + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

// One thread block per row: its first warp takes the best k times, then writes them in ascending order.
__global__ void __launch_bounds__(kThreads, 1) choose_kernel(MoeRouteArgs a, const float* logits) {
  __shared__ float scores[kThreads];
  __shared__ uint32_t choice[kThreads];
  const int64_t row = blockIdx.x;
  const int e = static_cast<int>(threadIdx.x), k = static_cast<int>(a.k), lane = e % kWarp;
  release_next();
  const float bias = e < a.n_experts ? __ldg(a.bias + e) : 0;
  wait_for_previous();
  uint32_t own = 0;  // nobody
  if (e < a.n_experts) {
    scores[e] = sqrtf(softplus(logits[row * a.n_experts + e] / a.temperature));
    own = ordered_bits(fmaxf(scores[e] + bias, -3e38f));  // a NaN comes last, too
  }
  choice[e] = own;
  __syncthreads();
  if (e >= kWarp) return;
  uint32_t held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = choice[i * kWarp + lane];
  int mine = 0x7fffffff;  // lane i: the i-th best
  for (int place = 0; place < k; ++place) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) best = max(best, held[i]);
    best = __reduce_max_sync(0xffffffffu, best);
    int at = kThreads;
#pragma unroll
    for (int i = kHeld - 1; i >= 0; --i) at = held[i] == best ? i * kWarp + lane : at;
    at = static_cast<int>(__reduce_min_sync(0xffffffffu, static_cast<uint32_t>(at)));
    if (lane == place) mine = at;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = at == i * kWarp + lane ? 0 : held[i];
  }
  // Ascending by counting, then the sum in that order, as the oracle adds.
  int place = 0;
  for (int j = 0; j < k; ++j) place += __shfl_sync(0xffffffffu, mine, j) < mine ? 1 : 0;
  const float weight = lane < k ? scores[mine] : 0.0f;
  float sum = 0;
  for (int j = 0; j < k; ++j) {
    const int from = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, lane < k && place == j))) - 1;
    sum += __shfl_sync(0xffffffffu, weight, from);
  }
  if (lane >= k) return;
  a.ids[row * k + place] = mine;
  a.weights[row * k + place] = (a.normalise ? weight / (sum + 1e-20f) : weight) * a.route_scale;
}

}  // namespace

Result<void> moe_choose_cuda(const MoeRouteArgs& a, const float* logits, CudaStream stream) {
  if (a.n_experts > kThreads || a.k > kMaxK || a.k > a.n_experts)
    return fail(Code::kUsage, "moe_route", "no instance for " + std::to_string(a.k) + " of " + std::to_string(a.n_experts) + " experts");
  if (a.n_rows == 0) return {};
  return launch_after(choose_kernel, stream, dim3(static_cast<unsigned>(a.n_rows)), kThreads, 0, a, logits);
}

Result<void> moe_route_cuda(const MoeRouteArgs& a, float* logits, CudaStream stream) {
  DSF_OK(linear_cuda({.x = a.x, .w = a.gate, .y = logits, .n_rows = a.n_rows, .in = a.dim, .out = a.n_experts, .x_stride = a.dim, .y_stride = a.n_experts}, nullptr, stream));
  return moe_choose_cuda(a, logits, stream);
}

}  // namespace dsf::serve::ops
