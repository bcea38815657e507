// A hash of the index, four values a thread and step. Limit: memory (writing).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/random_fill/random_fill.h"

namespace dsf::serve::ops {
namespace {

__device__ inline uint32_t hash(uint64_t at) {
  uint64_t z = at * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>(z >> 32);
}

__global__ void random_fill_kernel(RandomFillArgs a) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < a.n; i += size_t{gridDim.x} * blockDim.x) {
    const uint32_t bits = hash(a.seed + i + 1);
    if (a.type == FillType::kBits) {
      static_cast<uint32_t*>(a.to)[i] = bits;
      continue;
    }
    float v = a.low + (a.high - a.low) * (static_cast<float>(bits >> 9) * 0x1p-23f);
    if (a.sign && (bits & 1) != 0) v = -v;
    if (a.type == FillType::kF32) static_cast<float*>(a.to)[i] = v;
    else if (a.type == FillType::kBf16) static_cast<__nv_bfloat16*>(a.to)[i] = __float2bfloat16(v);
    else static_cast<__half*>(a.to)[i] = __float2half(v);
  }
}

}  // namespace

Result<void> random_fill_cuda(const RandomFillArgs& a, CUstream_st* stream) {
  if (a.n == 0) return {};
  const size_t blocks = (a.n + 255) / 256;
  random_fill_kernel<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(a);
  return launched("random_fill");
}

}  // namespace dsf::serve::ops
