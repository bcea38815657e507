// exl3_moe_many on wgmma. list: which tiles have rows. up and down: one thread block an SM walks over (tile of one expert, column block of 128), its
// producer ahead of it; up multiplies w1, leaves the result in what down will fill later, multiplies w3 and makes the activation and its image for w2.
#include "tools/serve/backends/ops/exl3_gemm/exl3_moe_many.cuh"
#include "tools/serve/backends/ops/exl3_gemm/exl3_wgmma.cuh"

namespace dsf::serve::ops::exl3 {
namespace {

constexpr int kListThreads = 1024;

// Keeps the order of tiles; those that need the full width come first, so that the small ones fill the end.
__global__ void __launch_bounds__(kListThreads) list_kernel(const __grid_constant__ MoeMany m) {
  __shared__ int counts[2][kListThreads / 32];
  __shared__ int done[2];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x < 2) done[threadIdx.x] = 0;
  __syncthreads();
  for (int pass = 0; pass < 2; ++pass) {  // the first pass counts, so that the second knows where the small ones begin
    const int small_begin = done[0];
    __syncthreads();
    if (threadIdx.x < 2) done[threadIdx.x] = pass == 0 || threadIdx.x == 0 ? 0 : small_begin;
    __syncthreads();
    for (int first = 0; first < m.max_tiles; first += kListThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      const MoeTile tile = i < m.max_tiles ? m.tile[i] : MoeTile{-1, 0, 0};
      const int kind = tile.expert < 0 ? -1 : tile.n_rows > kWideRows * 2 / 3 ? 0 : 1;
      uint32_t mask[2];
      for (int j = 0; j < 2; ++j) {
        mask[j] = __ballot_sync(0xffffffffu, kind == j);
        if (lane == 0) counts[j][warp] = __popc(mask[j]);
      }
      __syncthreads();
      if (kind >= 0 && pass == 1) {
        int at = done[kind] + __popc(mask[kind] & ((1u << lane) - 1));
        for (int w = 0; w < warp; ++w) at += counts[kind][w];
        m.list[1 + at] = i;
      }
      __syncthreads();
      if (threadIdx.x < 2)
        for (int w = 0; w < kListThreads / 32; ++w) done[threadIdx.x] += counts[threadIdx.x][w];
      __syncthreads();
    }
  }
  if (threadIdx.x == 0) m.list[0] = done[1];
}

#if DSF_HAVE_WGMMA
// Item `index`: the columns of a tile stand beside each other, as they share its image.
__device__ inline MoeTile moe_item(const MoeMany& m, int index, int columns, int& column) {
  column = index % columns;
  return m.tile[m.list[1 + index / columns]];
}
#endif

__global__ void __launch_bounds__(kWideThreads, 1) wide_up_kernel(const __grid_constant__ MoeMany m, int slot_bytes, int n_slots) {
#if DSF_HAVE_WGMMA
  extern __shared__ __align__(128) std::byte shared[];
  auto* const result = reinterpret_cast<float*>(shared + kBarrierBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, columns = m.a.inter / 128, n_items = m.list[0] * columns;
  Ring ring = make_ring(shared, kWideResultBytes, slot_bytes, n_slots);
  int column;
  if (threadIdx.x >= kConsumers) {
    become_producer();
    for (int i = static_cast<int>(blockIdx.x); threadIdx.x == kConsumers && i < n_items; i += static_cast<int>(gridDim.x)) {
      const MoeTile at = moe_item(m, i, columns, column);
      for (int matrix = 0; matrix < 2; ++matrix) produce(ring, up_tile(m, expert_of(m, at.expert), matrix, at, column));
    }
  } else {
    become_consumer();
    for (int i = static_cast<int>(blockIdx.x); i < n_items; i += static_cast<int>(gridDim.x)) {
      const MoeTile at = moe_item(m, i, columns, column);
      const Exl3Expert& e = expert_of(m, at.expert);
#pragma unroll 1
      for (int matrix = 0; matrix < 2; ++matrix) {
        wide_product(ring, up_tile(m, e, matrix, at, column), result);
        for (int row = warp; row < (at.n_rows + 3) / 4 * 4; row += kConsumers / 32) {
          float4* const gate = row < at.n_rows ? reinterpret_cast<float4*>(m.part + static_cast<int64_t>(m.entry[4 * at.first_group + row]) * m.a.dim + column * 128) + lane : nullptr;
          if (matrix == 1) up_row(m, e, at, column, gate != nullptr ? *gate : make_float4(0, 0, 0, 0), result, row, lane);
          else if (gate != nullptr) *gate = gate_row(e, column, result, row, lane);
        }
        consumers_meet();
      }
    }
  }
#endif
}

__global__ void __launch_bounds__(kWideThreads, 1) wide_down_kernel(const __grid_constant__ MoeMany m, int slot_bytes, int n_slots) {
#if DSF_HAVE_WGMMA
  extern __shared__ __align__(128) std::byte shared[];
  auto* const result = reinterpret_cast<float*>(shared + kBarrierBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, columns = m.a.dim / 128, n_items = m.list[0] * columns;
  Ring ring = make_ring(shared, kWideResultBytes, slot_bytes, n_slots);
  int column;
  if (threadIdx.x >= kConsumers) {
    become_producer();
    for (int i = static_cast<int>(blockIdx.x); threadIdx.x == kConsumers && i < n_items; i += static_cast<int>(gridDim.x)) {
      const MoeTile at = moe_item(m, i, columns, column);
      produce(ring, down_tile(m, expert_of(m, at.expert), at, column));
    }
  } else {
    become_consumer();
    for (int i = static_cast<int>(blockIdx.x); i < n_items; i += static_cast<int>(gridDim.x)) {
      const MoeTile at = moe_item(m, i, columns, column);
      const Exl3Expert& e = expert_of(m, at.expert);
      wide_product(ring, down_tile(m, e, at, column), result);
      for (int row = warp; row < at.n_rows; row += kConsumers / 32) down_row(m, e, at, column, result, row, lane);
      consumers_meet();
    }
  }
#endif
}

}  // namespace

bool wide_moe_fits(const gpu::Facts& device, const Exl3MoeArgs& a, int max_bits) {
  return device.arch == kWideArch && a.inter <= a.dim && slots_for(device.smem_per_block, kWideResultBytes, max_bits) >= 2;
}

Result<void> launch_wide_moe(const gpu::Stream& s, const gpu::Facts& device, const MoeMany& m, int max_bits) {
  const int n_slots = slots_for(device.smem_per_block, kWideResultBytes, max_bits), bytes = kBarrierBytes + kWideResultBytes + n_slots * slot_bytes(max_bits);
  DSF_CUDA_TRY(cudaFuncSetAttribute(wide_up_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  DSF_CUDA_TRY(cudaFuncSetAttribute(wide_down_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  list_kernel<<<1, kListThreads, 0, gpu::cuda_stream(s)>>>(m);
  DSF_CUDA_TRY(cudaGetLastError());
  const auto blocks = static_cast<unsigned>(device.n_sms);
  wide_up_kernel<<<blocks, kWideThreads, static_cast<size_t>(bytes), gpu::cuda_stream(s)>>>(m, slot_bytes(max_bits), n_slots);
  DSF_CUDA_TRY(cudaGetLastError());
  wide_down_kernel<<<blocks, kWideThreads, static_cast<size_t>(bytes), gpu::cuda_stream(s)>>>(m, slot_bytes(max_bits), n_slots);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops::exl3
