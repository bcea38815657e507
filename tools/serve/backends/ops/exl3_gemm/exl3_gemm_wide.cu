// exl3_gemm on wgmma: one thread block an SM walks over the (matrix, column block of 128, tile of 96 rows) of the launch; its producer is ahead of it.
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.cuh"
#include "tools/serve/backends/ops/exl3_gemm/exl3_wgmma.cuh"

namespace dsf::serve::ops::exl3 {
namespace {

__global__ void __launch_bounds__(kWideThreads, 1) wide_gemm_kernel(const __grid_constant__ GemmLaunch a, int slot_bytes, int n_slots) {
#if DSF_HAVE_WGMMA
  extern __shared__ __align__(128) std::byte shared[];
  auto* const result = reinterpret_cast<float*>(shared + kBarrierBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Ring ring = make_ring(shared, kWideResultBytes, slot_bytes, n_slots);
  GemmItem item;
  if (threadIdx.x >= kConsumers) {
    become_producer();
    for (int i = static_cast<int>(blockIdx.x); threadIdx.x == kConsumers && i < a.n_items; i += static_cast<int>(gridDim.x)) {
      gemm_item(a, i, kWideRows, item);
      produce(ring, item.tile);
    }
  } else {
    become_consumer();
    for (int i = static_cast<int>(blockIdx.x); i < a.n_items; i += static_cast<int>(gridDim.x)) {
      const GemmProblem& p = gemm_item(a, i, kWideRows, item);
      wide_product(ring, item.tile, result);
      for (int row = warp; row < item.n_rows; row += kConsumers / 32) store_row(p, item, result, row, lane);
      consumers_meet();
    }
  }
#endif
}

}  // namespace

Result<void> launch_wide_gemm(const gpu::Stream& s, const gpu::Facts& device, GemmLaunch& a, int bits) {
  set_tiles(a, kWideRows);
  const int n_slots = slots_for(device.smem_per_block, kWideResultBytes, bits), bytes = kBarrierBytes + kWideResultBytes + n_slots * slot_bytes(bits);
  DSF_CUDA_TRY(cudaFuncSetAttribute(wide_gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  wide_gemm_kernel<<<static_cast<unsigned>(std::min(a.n_items, device.n_sms)), kWideThreads, static_cast<size_t>(bytes), gpu::cuda_stream(s)>>>(a, slot_bytes(bits), n_slots);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops::exl3
