// The router's logits by linear_cuda, then one warp per row: k rounds of "the best left, lower expert on ties". Limit: launch.
#include "tools/serve/backends/cuda/launch_weights.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxPerLane = 16;  // experts a lane holds: up to 512
constexpr int kMaxK = 32;

__device__ float softplus(float z) { return z > 20.0f ? z : log1pf(expf(z)); }

__global__ void __launch_bounds__(kThreads) choose_kernel(MoeRouteArgs a, const float* logits) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (row >= a.n_rows) return;
  float score[kMaxPerLane], choice[kMaxPerLane];
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int e = i * kWarp + lane;
    score[i] = e < a.n_experts ? sqrtf(softplus(logits[row * a.n_experts + e] / a.temperature)) : 0.0f;
    choice[i] = e < a.n_experts ? score[i] + a.bias[e] : kNever;
  }
  // Lane j keeps the j-th chosen expert.
  int chosen = 0x7fffffff;
  float weight = 0;
  for (int round = 0; round < a.k; ++round) {
    float best = kNever, value = 0;
    int expert = 0x7fffffff;
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      if (choice[i] > best) best = choice[i], expert = i * kWarp + lane, value = score[i];
    }
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, mask), other_value = __shfl_xor_sync(0xffffffffu, value, mask);
      const int other_expert = __shfl_xor_sync(0xffffffffu, expert, mask);
      if (other > best || (other == best && other_expert < expert)) best = other, expert = other_expert, value = other_value;
    }
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      if (i * kWarp + lane == expert) choice[i] = kNever;
    }
    if (lane == round) chosen = expert, weight = value;
  }
  // Ascending by counting, then the sum in that order, as the oracle adds.
  int place = 0;
  for (int j = 0; j < a.k; ++j) place += __shfl_sync(0xffffffffu, chosen, j) < chosen ? 1 : 0;
  float sum = 0;
  for (int p = 0; p < a.k; ++p) {
    const unsigned holder = __ballot_sync(0xffffffffu, lane < a.k && place == p);
    sum += __shfl_sync(0xffffffffu, weight, __ffs(static_cast<int>(holder)) - 1);
  }
  if (lane < a.k) {
    a.ids[row * a.k + place] = chosen;
    a.weights[row * a.k + place] = (a.normalise ? weight / (sum + 1e-20f) : weight) * a.route_scale;
  }
}

}  // namespace

Result<void> moe_choose_cuda(const MoeRouteArgs& a, const float* logits, CudaStream stream) {
  if (a.n_experts > kMaxPerLane * kWarp || a.k > kMaxK)
    return fail(Code::kUsage, "moe_route", "no instance for " + std::to_string(a.k) + " of " + std::to_string(a.n_experts) + " experts");
  if (a.n_rows == 0) return {};
  choose_kernel<<<grid_of(a.n_rows, kThreads / kWarp), kThreads, 0, stream>>>(a, logits);
  return launched("moe_route");
}

Result<void> moe_route_cuda(const MoeRouteArgs& a, float* logits, CudaStream stream) {
  DSF_OK(linear_cuda({.x = a.x, .w = a.gate, .y = logits, .n_rows = a.n_rows, .in = a.dim, .out = a.n_experts, .x_stride = a.dim, .y_stride = a.n_experts}, nullptr, stream));
  return moe_choose_cuda(a, logits, stream);
}

}  // namespace dsf::serve::ops
