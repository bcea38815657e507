// Dense f32 experts, a warp per output value: the plain path for checkpoints that are not packed and the debug mode. Every row reads its
// experts for itself. Limit: weight bandwidth.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kPerBlock = kThreads / kWarp;

__device__ float warp_dot(const float* x, const float* w, int64_t n, int lane) {
  float sum = 0;
  for (int64_t i = lane; i < n; i += kWarp) sum = fmaf(x[i], w[i], sum);
  return warp_sum(sum);
}

// Slot k is the shared expert.
__device__ const ExpertWeights* expert_of(const MoeExpertsArgs& a, int64_t row, int64_t slot) {
  return slot < a.k ? a.experts + a.ids[row * a.k + slot] : a.shared;
}

__global__ void __launch_bounds__(kThreads) gate_up_kernel(MoeExpertsArgs a, int64_t max_inter, float* hidden) {
  const int lane = threadIdx.x % kWarp;
  const int64_t j = int64_t{blockIdx.x} * kPerBlock + threadIdx.x / kWarp, slot = blockIdx.y, row = blockIdx.z;
  const ExpertWeights* e = expert_of(a, row, slot);
  if (e == nullptr || j >= e->inter) return;
  const float* x = a.x + row * a.dim;
  const float g = fminf(warp_dot(x, e->w1 + j * a.dim, a.dim, lane), a.limit);
  const float u = fminf(fmaxf(warp_dot(x, e->w3 + j * a.dim, a.dim, lane), -a.limit), a.limit);
  const float weight = slot < a.k ? a.weights[row * a.k + slot] : 1.0f;
  if (lane == 0) hidden[(row * (a.k + 1) + slot) * max_inter + j] = g * sigmoid(g) * u * weight;
}

__global__ void __launch_bounds__(kThreads) down_kernel(MoeExpertsArgs a, int64_t max_inter, const float* hidden) {
  const int lane = threadIdx.x % kWarp;
  const int64_t d = int64_t{blockIdx.x} * kPerBlock + threadIdx.x / kWarp, row = blockIdx.y;
  if (d >= a.dim) return;
  float sum = 0;
  for (int64_t slot = 0; slot <= a.k; ++slot) {
    const ExpertWeights* e = expert_of(a, row, slot);
    if (e != nullptr) sum += warp_dot(hidden + (row * (a.k + 1) + slot) * max_inter, e->w2 + d * e->inter, e->inter, lane);
  }
  if (lane == 0) a.y[row * a.dim + d] = sum;
}

}  // namespace

Result<void> moe_experts_cuda(const MoeExpertsArgs& a, int64_t max_inter, float* hidden, CudaStream stream) {
  if (a.n_rows == 0) return {};
  gate_up_kernel<<<dim3(grid_of(max_inter, kPerBlock), static_cast<unsigned>(a.k + 1), static_cast<unsigned>(a.n_rows)), kThreads, 0, stream>>>(a, max_inter, hidden);
  DSF_OK(launched("moe_experts"));
  down_kernel<<<dim3(grid_of(a.dim, kPerBlock), static_cast<unsigned>(a.n_rows)), kThreads, 0, stream>>>(a, max_inter, hidden);
  return launched("moe_experts");
}

}  // namespace dsf::serve::ops
