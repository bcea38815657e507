#pragma once
// Reductions whose order depends on the shape alone, and the launch check. Included by .cu files only.
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "dsf/base/result.h"

namespace dsf::serve::ops {

inline constexpr int kWarp = 32;
inline constexpr float kNever = -__builtin_huge_valf();

// Sum over the warp; every lane gets it.
__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
  return v;
}

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, mask));
  return v;
}

// Sum over the block of Threads threads; every thread gets it. scratch: one float per warp, free again after the call.
template <int Threads>
__device__ float block_sum(float v, float* scratch) {
  constexpr int kWarps = Threads / kWarp;
  v = warp_sum(v);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = v;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += scratch[w];
  __syncthreads();
  return total;
}

__device__ inline float sigmoid(float z) { return 1.0f / (1.0f + expf(-z)); }

inline Result<void> launched(const char* op) {
  const cudaError_t e = cudaGetLastError();
  if (e == cudaSuccess) return {};
  return fail(Code::kBug, op, std::string("kernel launch failed: ") + cudaGetErrorName(e) + ": " + cudaGetErrorString(e), {}, "cuda");
}

inline unsigned grid_of(int64_t n, int64_t per_block) { return static_cast<unsigned>((n + per_block - 1) / per_block); }

}  // namespace dsf::serve::ops
