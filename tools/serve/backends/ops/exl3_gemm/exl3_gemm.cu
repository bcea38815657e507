// Two kernels. image: one warp per (matrix, row, 128 inputs). gemm: one thread block per (matrix, column block of 128, tile of rows); tiles of one
// column run side by side and share its weights in L2. Bytes moved: the weights once from memory, images and outputs through L2. On sm_90 the
// second one is exl3_gemm_wide.cu's.
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.cuh"
#include "tools/serve/backends/ops/exl3_gemm/exl3_tile.cuh"
#include "tools/serve/backends/ops/exl3_gemm/exl3_wgmma.cuh"
#include "tools/serve/backends/ops/exl3_gemm/tile_size.h"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

__global__ void __launch_bounds__(kThreads) image_kernel(const __grid_constant__ GemmLaunch a) {
  const int lane = static_cast<int>(threadIdx.x) % 32, kb = a.kb, padded = (a.n_rows + 3) / 4 * 4;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int b = static_cast<int>(task % kb), row = static_cast<int>(task / kb % padded), which = static_cast<int>(task / kb / padded);
  if (which >= a.n_problems) return;
  const GemmProblem& p = a.problem[which];
  const int k = b * 128 + 4 * lane;
  float4 x = make_float4(0, 0, 0, 0);
  if (row < a.n_rows) x = *reinterpret_cast<const float4*>(p.x + static_cast<int64_t>(row) * a.x_stride + k);
  put_image(p.image + (static_cast<int64_t>(b) * (padded / 4) + row / 4) * kGroupWords, row % 4, split_row(to_rotated(x, half4(p.suh, k), lane)), lane);
}

template <int NB, int BlocksPerSm>
__global__ void __launch_bounds__(kThreads, BlocksPerSm) gemm_kernel(const __grid_constant__ GemmLaunch a) {
  extern __shared__ __align__(128) std::byte shared[];
  GemmItem item;
  const GemmProblem& p = gemm_item(a, static_cast<int>(blockIdx.x), 4 * NB, item);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* const result = reinterpret_cast<float*>(shared + 2 * stage_bytes<NB>(p.bits));
  tile_product<NB>(item.tile, shared, result);
  for (int row = warp; row < item.n_rows; row += kWarps) store_row(p, item, result, row, lane);
}

template <int NB>
size_t shared_bytes(int bits) {
  return static_cast<size_t>(2 * stage_bytes<NB>(bits) + result_bytes<NB>());
}

template <int NB, int BlocksPerSm>
Result<void> launch(const gpu::Stream& s, GemmLaunch& a, int bits) {
  set_tiles(a, 4 * NB);
  DSF_CUDA_TRY(cudaFuncSetAttribute(gemm_kernel<NB, BlocksPerSm>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes<NB>(bits))));
  gemm_kernel<NB, BlocksPerSm><<<static_cast<unsigned>(a.n_items), kThreads, shared_bytes<NB>(bits), gpu::cuda_stream(s)>>>(a);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

Result<void> check_shapes(const Exl3GemvArgs& a) {
  if (a.n_rows < 1 || a.outputs.empty() || a.outputs.size() > kExl3GemvMatrices) return fail(Code::kBug, "exl3_gemm", "1 row or more, 1 to 8 matrices");
  for (const auto& o : a.outputs) {
    const auto& w = o.w;
    if (w.in <= 0 || w.out <= 0 || w.in % 128 != 0 || w.out % 128 != 0 || w.bits < 1 || w.bits > 8 || w.in != a.outputs[0].w.in)
      return fail(Code::kBug, "exl3_gemm", "matrix shape");
  }
  return {};
}

size_t image_bytes_of(const Exl3Matrix& w, int64_t n_rows) { return static_cast<size_t>((n_rows + 3) / 4 * (w.in / 128)) * kGroupBytes; }

}  // namespace
}  // namespace exl3

size_t exl3_gemm_workspace_bytes(std::span<const Exl3GemvArgs::Output> outputs, int64_t n_rows) {
  size_t bytes = 0;
  for (const auto& o : outputs) bytes += exl3::image_bytes_of(o.w, n_rows);
  return bytes;
}

Result<void> exl3_gemm(const gpu::Stream& s, const gpu::Facts& device, const Exl3GemvArgs& a) {
  using namespace exl3;
  DSF_OK(check_shapes(a));
  GemmLaunch l{};
  l.n_rows = a.n_rows, l.x_stride = a.x_stride, l.n_problems = static_cast<int>(a.outputs.size()), l.kb = a.outputs[0].w.in / 128;
  auto* free = static_cast<std::byte*>(a.workspace);
  int bits = 0, columns = 0;
  for (int i = 0; i < l.n_problems; ++i) {
    const auto& o = a.outputs[static_cast<size_t>(i)];
    l.problem[i] = {.lanes = static_cast<const uint4*>(o.w.lanes), .suh = reinterpret_cast<const __half*>(o.w.suh), .svh = reinterpret_cast<const __half*>(o.w.svh),
                    .x = a.x + o.x_offset, .y = o.y, .image = reinterpret_cast<uint32_t*>(free), .y_stride = o.y_stride, .cb = o.w.out / 128, .bits = o.w.bits,
                    .chunks = plan(o.w.in, o.w.out, device.n_sms).chunks, .first_item = 0};
    free += image_bytes_of(o.w, a.n_rows);
    bits = std::max(bits, o.w.bits), columns += o.w.out / 128;
  }
  const int64_t tasks = static_cast<int64_t>(l.n_problems) * ((l.n_rows + 3) / 4 * 4) * l.kb;
  image_kernel<<<static_cast<unsigned>((tasks + kWarps - 1) / kWarps), kThreads, 0, gpu::cuda_stream(s)>>>(l);
  DSF_CUDA_TRY(cudaGetLastError());
  if (device.arch == kWideArch && slots_for(device.smem_per_block, kWideResultBytes, bits) >= 2) return launch_wide_gemm(s, device, l, bits);
  const size_t needs[] = {shared_bytes<kTileGroups[0]>(bits), shared_bytes<kTileGroups[1]>(bits), shared_bytes<kTileGroups[2]>(bits)};
  switch (tile_choice((l.n_rows + 3) / 4, columns, device.n_sms, device.smem_per_block, needs)) {
    case 0: return launch<kTileGroups[0], kTilesPerSm[0]>(s, l, bits);
    case 1: return launch<kTileGroups[1], kTilesPerSm[1]>(s, l, bits);
    default: return launch<kTileGroups[2], kTilesPerSm[2]>(s, l, bits);
  }
}

}  // namespace dsf::serve::ops
