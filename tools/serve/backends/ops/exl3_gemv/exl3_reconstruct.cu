// One thread block of 128 threads per 128 x 128 block: decode into shared memory [k][column], Hadamard along columns, then along k, store
// transposed. Bytes moved: in * out * (bits / 8 + 4). Limit: memory (writing f32).
#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_core.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_reconstruct.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

constexpr int kStride = 132;  // floats a row of the tile: 16-byte aligned rows, columns spread over the banks
constexpr int kTileBytes = 128 * kStride * static_cast<int>(sizeof(float));

// Format value of a 16-bit state.
__device__ inline float value_of(Exl3Codebook codebook, uint32_t state) {
  if (codebook == Exl3Codebook::kMul1) {
    const int sum = static_cast<int>(__dp4a(state * kMul1, 0x01010101u, 0u));
    return __half2float(__float2half_rn(static_cast<float>(1774 * sum - 905216) / 262144.0f));
  }
  uint32_t x = codebook == Exl3Codebook::kMcg ? 0xCBAC1FEDu * state : 89226354u * state + 64248484u;
  x = (x & 0x8FFF8FFFu) ^ 0x3B603B60u;
  return __half2float(__hadd(__ushort_as_half(static_cast<unsigned short>(x)), __ushort_as_half(static_cast<unsigned short>(x >> 16))));
}

// Quarter `part` of this lane's words: 32 values into the tile (places as in exl3_decode.cuh).
__device__ void decode_part(const uint32_t* words, int bits, Exl3Codebook codebook, int part, float* tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  auto word = [&](int of_lane, int i) {
    const int at = part * bits + i;
    return words[((warp * bits + at / 4) * 32 + of_lane) * 4 + at % 4];
  };
  for (int i = 0; i < 32; ++i) {
    const int start = (i + 1) * bits - 16, end = start + 16;  // relative to the lane's own bits
    const int high_at = start < 0 ? -1 : start / 32, low_at = (end - 1) / 32;
    const uint32_t high = high_at < 0 ? word((lane + 28) % 32, bits - 1) : word(lane, high_at);
    const uint32_t low = low_at == high_at ? high : word(lane, low_at);
    const uint32_t state = __funnelshift_r(low, high, 32 * (low_at + 1) - end) & 0xffffu;
    const int p = i / 8, j = i % 8;
    const int k = part / 2 * 64 + 16 * q + 2 * p + (j & 1) + 8 * ((j >> 1) & 1), column = warp * 32 + part % 2 * 16 + g + 8 * (j >> 2);
    tile[k * kStride + column] = value_of(codebook, state);
  }
}

__global__ void __launch_bounds__(kThreads) reconstruct_kernel(const uint32_t* lanes, const __half* suh, const __half* svh, int kb, int bits,
                                                               Exl3Codebook codebook, float* weight) {
  extern __shared__ __align__(16) float tile[];
  const int k_block = static_cast<int>(blockIdx.x) % kb, column_block = static_cast<int>(blockIdx.x) / kb;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t* words = lanes + static_cast<int64_t>(blockIdx.x) * kWarps * bits * 128;
  for (int part = 0; part < 4; ++part) decode_part(words, bits, codebook, part, tile);
  __syncthreads();
  for (int k = warp; k < 128; k += kWarps) {
    float4* at = reinterpret_cast<float4*>(tile + k * kStride) + lane;
    *at = from_rotated(*at, svh, column_block, lane);
  }
  __syncthreads();
  const float4 scale = half4(suh, k_block * 128 + 4 * lane);
  for (int column = warp; column < 128; column += kWarps) {
    const float* at = tile + 4 * lane * kStride + column;
    const float4 v = hadamard128(make_float4(at[0], at[kStride], at[2 * kStride], at[3 * kStride]), lane);
    const float4 w = mul4(mul4(v, scale), make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
    reinterpret_cast<float4*>(weight + (static_cast<int64_t>(column_block) * 128 + column) * kb * 128 + k_block * 128)[lane] = w;
  }
}

}  // namespace
}  // namespace exl3

Result<void> exl3_reconstruct(const gpu::Stream& s, const Exl3Matrix& m, Exl3Codebook codebook, float* weight) {
  if (m.in <= 0 || m.out <= 0 || m.in % 128 != 0 || m.out % 128 != 0 || m.bits < 1 || m.bits > 8) return fail(Code::kBug, "exl3_reconstruct", "matrix shape");
  DSF_CUDA_TRY(cudaFuncSetAttribute(exl3::reconstruct_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, exl3::kTileBytes));
  const unsigned blocks = static_cast<unsigned>(m.in / 128) * static_cast<unsigned>(m.out / 128);
  exl3::reconstruct_kernel<<<blocks, exl3::kThreads, exl3::kTileBytes, gpu::cuda_stream(s)>>>(
      static_cast<const uint32_t*>(m.lanes), reinterpret_cast<const __half*>(m.suh), reinterpret_cast<const __half*>(m.svh), m.in / 128, m.bits, codebook, weight);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops
