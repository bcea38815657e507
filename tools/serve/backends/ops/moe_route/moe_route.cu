// The router's logits by linear_cuda, then one thread block per row. Lower expert on ties. Limit: launch.
#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 512;  // one expert each
constexpr int kMaxK = 32;

__device__ float softplus(float z) { return z > 20.0f ? z : log1pf(expf(z)); }

// One thread block per row: an expert is chosen when fewer than k others come before it.
__global__ void __launch_bounds__(kThreads) choose_kernel(MoeRouteArgs a, const float* logits) {
  __shared__ __align__(16) float choice[kThreads];
  __shared__ int chosen[kMaxK];
  __shared__ float weight[kMaxK], ordered[kMaxK];
  const int64_t row = blockIdx.x;
  const int e = static_cast<int>(threadIdx.x), k = static_cast<int>(a.k);
  float score = 0, own = kNever;
  if (e < a.n_experts) {
    score = sqrtf(softplus(logits[row * a.n_experts + e] / a.temperature));
    own = fmaxf(score + a.bias[e], -3e38f);  // a NaN comes last, too
  }
  choice[e] = own;
  __syncthreads();
  if (e < a.n_experts) {
    int before = 0;
    for (int i = 0; i < a.n_experts; i += 4) {
      const float4 c = *reinterpret_cast<const float4*>(choice + i);  // behind the experts stands kNever
      before += (c.x > own || (c.x == own && i < e)) + (c.y > own || (c.y == own && i + 1 < e)) + (c.z > own || (c.z == own && i + 2 < e)) + (c.w > own || (c.w == own && i + 3 < e));
    }
    if (before < k) chosen[before] = e, weight[before] = score;
  }
  __syncthreads();
  // Ascending by counting, then the sum in that order, as the oracle adds.
  int place = 0;
  if (e < k) {
    for (int j = 0; j < k; ++j) place += chosen[j] < chosen[e] ? 1 : 0;
    ordered[place] = weight[e];
  }
  __syncthreads();
  if (e >= k) return;
  float sum = 0;
  for (int j = 0; j < k; ++j) sum += ordered[j];
  a.ids[row * k + place] = chosen[e];
  a.weights[row * k + place] = (a.normalise ? weight[e] / (sum + 1e-20f) : weight[e]) * a.route_scale;
}

}  // namespace

Result<void> moe_choose_cuda(const MoeRouteArgs& a, const float* logits, CudaStream stream) {
  if (a.n_experts > kThreads || a.k > kMaxK || a.k > a.n_experts)
    return fail(Code::kUsage, "moe_route", "no instance for " + std::to_string(a.k) + " of " + std::to_string(a.n_experts) + " experts");
  if (a.n_rows == 0) return {};
  choose_kernel<<<static_cast<unsigned>(a.n_rows), kThreads, 0, stream>>>(a, logits);
  return launched("moe_route");
}

Result<void> moe_route_cuda(const MoeRouteArgs& a, float* logits, CudaStream stream) {
  DSF_OK(linear_cuda({.x = a.x, .w = a.gate, .y = logits, .n_rows = a.n_rows, .in = a.dim, .out = a.n_experts, .x_stride = a.dim, .y_stride = a.n_experts}, nullptr, stream));
  return moe_choose_cuda(a, logits, stream);
}

}  // namespace dsf::serve::ops
