// Five kernels. group: one warp per expert collects the rows that chose it and its tiles. image: one warp per (matrix w1 or w3, entry, 128 inputs).
// up: one thread block per (tile of one expert's rows, column block): w1, then w3, then the activation and its image for w2. down: the same for
// w2, one result per (row, choice). sum: adds a row's choices in ascending order of expert, the shared one last.
// Bytes moved: weights of the chosen experts once a tile; per row and choice two images of dim and one of inter, and one f32 result of dim.
#include "tools/serve/backends/ops/exl3_gemm/exl3_moe_many.cuh"
#include "tools/serve/backends/ops/exl3_gemm/exl3_tile.cuh"
#include "tools/serve/backends/ops/exl3_gemm/exl3_wgmma.cuh"
#include "tools/serve/backends/ops/exl3_gemm/tile_size.h"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

// Groups and tiles of an expert begin at o / 4 + e and o / tile_rows + e, where o is the number of choices of experts before e: never less than
// what those experts need, so no expert waits for another's count.
__global__ void __launch_bounds__(kThreads) group_kernel(const __grid_constant__ MoeMany m) {
  const int e = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int n_all = m.n_experts + (m.a.shared != nullptr ? 1 : 0), n = m.a.n_rows * m.a.k;
  if (e >= n_all) return;
  const bool is_shared = e == m.n_experts;
  int before = is_shared ? n : 0, count = is_shared ? m.a.n_rows : 0;
  for (int i = 0; !is_shared && i < n; i += 32) {
    const int id = i + lane < n ? m.a.ids[i + lane] : 0x7fffffff;
    before += __popc(__ballot_sync(0xffffffffu, id < e)), count += __popc(__ballot_sync(0xffffffffu, id == e));
  }
  const int group = before / 4 + e, group_end = e + 1 == n_all ? m.max_groups : (before + count) / 4 + e + 1;
  const int tile = before / m.tile_rows + e, tile_end = e + 1 == n_all ? m.max_tiles : (before + count) / m.tile_rows + e + 1;
  for (int i = lane; i < tile_end - tile; i += 32) {
    const int first = i * m.tile_rows;
    m.tile[tile + i] = first < count ? MoeTile{e, group + first / 4, min(count - first, m.tile_rows)} : MoeTile{-1, 0, 0};
  }
  for (int i = lane; i < group_end - group; i += 32) m.owner[group + i] = 4 * i < count ? e : -1;
  int32_t* const entry = m.entry + 4 * group;
  for (int i = count + lane; i < (count + 3) / 4 * 4; i += 32) entry[i] = -1;
  for (int i = lane; is_shared && i < count; i += 32) entry[i] = i * (m.a.k + 1) + m.a.k;
  for (int i = 0, at = 0; !is_shared && i < n; i += 32) {
    const bool mine = i + lane < n && m.a.ids[i + lane] == e;
    const uint32_t mask = __ballot_sync(0xffffffffu, mine);
    if (mine) entry[at + __popc(mask & ((1u << lane) - 1))] = (i + lane) / m.a.k * (m.a.k + 1) + (i + lane) % m.a.k;
    at += __popc(mask);
  }
}

// Grid: (groups, matrices); a thread block's warps share the pieces of a group of four rows.
__global__ void __launch_bounds__(kThreads) up_image_kernel(const __grid_constant__ MoeMany m) {
  const int group = static_cast<int>(blockIdx.x), matrix = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32, kb = m.a.dim / 128;
  const int expert = m.owner[group];
  if (expert < 0) return;
  const Exl3Expert& e = expert_of(m, expert);
  const auto* suh = reinterpret_cast<const __half*>(matrix == 0 ? e.w1.suh : e.w3.suh);
  uint32_t* const image = m.up + (static_cast<int64_t>(matrix) * kb * m.max_groups + group) * kGroupWords;
  for (int task = static_cast<int>(threadIdx.x) / 32; task < 4 * kb; task += kWarps) {
    const int t = task % 4, b = task / 4, entry = m.entry[4 * group + t], k = b * 128 + 4 * lane;
    float4 x = make_float4(0, 0, 0, 0);
    if (entry >= 0) x = *reinterpret_cast<const float4*>(m.a.x + static_cast<int64_t>(entry / (m.a.k + 1)) * m.a.dim + k);
    put_image(image + static_cast<int64_t>(b) * m.max_groups * kGroupWords, t, split_row(to_rotated(x, half4(suh, k), lane)), lane);
  }
}

template <int NB, int BlocksPerSm>
__global__ void __launch_bounds__(kThreads, BlocksPerSm) up_kernel(const __grid_constant__ MoeMany m) {
  extern __shared__ __align__(128) std::byte shared[];
  const int column = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const MoeTile at = m.tile[blockIdx.y];
  if (at.expert < 0) return;
  const Exl3Expert& e = expert_of(m, at.expert);
  float* const g_tile = reinterpret_cast<float*>(shared);
  float* const u_tile = g_tile + 4 * NB * kTileStride;
  std::byte* const stages = reinterpret_cast<std::byte*>(u_tile + 4 * NB * kTileStride);
  tile_product<NB>(up_tile(m, e, 0, at, column), stages, g_tile);
  tile_product<NB>(up_tile(m, e, 1, at, column), stages, u_tile);
  for (int row = warp; row < (at.n_rows + 3) / 4 * 4; row += kWarps) up_row(m, e, at, column, gate_row(e, column, g_tile, row, lane), u_tile, row, lane);
}

template <int NB, int BlocksPerSm>
__global__ void __launch_bounds__(kThreads, BlocksPerSm) down_kernel(const __grid_constant__ MoeMany m) {
  extern __shared__ __align__(128) std::byte shared[];
  const int column = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const MoeTile at = m.tile[blockIdx.y];
  if (at.expert < 0) return;
  const Exl3Expert& e = expert_of(m, at.expert);
  float* const result = reinterpret_cast<float*>(shared);
  tile_product<NB>(down_tile(m, e, at, column), shared + result_bytes<NB>(), result);
  for (int row = warp; row < at.n_rows; row += kWarps) down_row(m, e, at, column, result, row, lane);
}

// Grid: (dim / 512, rows); four values a thread.
__global__ void __launch_bounds__(kThreads) sum_kernel(const __grid_constant__ MoeMany m) {
  const int row = static_cast<int>(blockIdx.y), k = m.a.k, at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (4 * at >= m.a.dim) return;
  const int32_t* own = m.a.ids + static_cast<int64_t>(row) * k;
  const float* part = m.part + static_cast<int64_t>(row) * (k + 1) * m.a.dim;
  float4 y = make_float4(0, 0, 0, 0);
  for (int place = 0; place < k; ++place) {
    int choice = 0;
    for (int j = 0; j < k; ++j) {
      int before = 0;
      for (int i = 0; i < k; ++i) before += own[i] < own[j] ? 1 : 0;
      if (before == place) choice = j;
    }
    y = add4(y, reinterpret_cast<const float4*>(part + static_cast<int64_t>(choice) * m.a.dim)[at]);
  }
  if (m.a.shared != nullptr) y = add4(y, reinterpret_cast<const float4*>(part + static_cast<int64_t>(k) * m.a.dim)[at]);
  reinterpret_cast<float4*>(m.a.y + static_cast<int64_t>(row) * m.a.dim)[at] = y;
}

template <int NB, int BlocksPerSm>
Result<void> launch(const gpu::Stream& s, const MoeMany& m, int max_bits) {
  const int stages = 2 * stage_bytes<NB>(max_bits), up_bytes = stages + 2 * result_bytes<NB>(), down_bytes = stages + result_bytes<NB>();
  DSF_CUDA_TRY(cudaFuncSetAttribute(up_kernel<NB, BlocksPerSm>, cudaFuncAttributeMaxDynamicSharedMemorySize, up_bytes));
  DSF_CUDA_TRY(cudaFuncSetAttribute(down_kernel<NB, BlocksPerSm>, cudaFuncAttributeMaxDynamicSharedMemorySize, down_bytes));
  const auto tiles = static_cast<unsigned>(m.max_tiles);
  up_kernel<NB, BlocksPerSm><<<dim3(static_cast<unsigned>(m.a.inter / 128), tiles), kThreads, up_bytes, gpu::cuda_stream(s)>>>(m);
  DSF_CUDA_TRY(cudaGetLastError());
  down_kernel<NB, BlocksPerSm><<<dim3(static_cast<unsigned>(m.a.dim / 128), tiles), kThreads, down_bytes, gpu::cuda_stream(s)>>>(m);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

int groups_bound(int64_t n_rows, int k, int n_experts) { return static_cast<int>(n_rows * k / 4 + n_experts + (n_rows + 3) / 4 + 1); }
size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// The tile size nearest to an expert's usual number of rows. The largest does not pay: two result tiles leave room for one thread block an SM.
int rows_choice(const Exl3MoeArgs& a, int n_experts) { return a.n_rows * a.k / n_experts <= 12 ? 0 : 1; }

}  // namespace
}  // namespace exl3

size_t exl3_moe_many_workspace_bytes(int64_t n_rows, int k, int n_experts, int dim, int inter) {
  using namespace exl3;
  const auto groups = static_cast<size_t>(groups_bound(n_rows, k, n_experts));
  const auto tiles = static_cast<size_t>(n_rows * (k + 1) / 16 + n_experts + 3);
  return aligned(groups * 4 * sizeof(int32_t)) + aligned(groups * sizeof(int32_t)) + aligned(tiles * sizeof(MoeTile)) + aligned((tiles + 1) * sizeof(int32_t)) +
         groups * static_cast<size_t>(2 * dim / 128 + inter / 128) * kGroupBytes + 4 * 256 + static_cast<size_t>(n_rows * (k + 1) * dim) * sizeof(float);
}

Result<void> exl3_moe_many(const gpu::Stream& s, const gpu::Facts& device, const Exl3MoeArgs& a, int n_experts, int max_bits) {
  using namespace exl3;
  if (a.n_rows < 1 || a.k < 1 || a.k > kExl3MoeChoices || a.dim <= 0 || a.inter <= 0 || a.dim % 128 != 0 || a.inter % 128 != 0 || n_experts < 1 || max_bits < 1 || max_bits > 8)
    return fail(Code::kBug, "exl3_moe_many", "1 to 8 choices, 1 to 8 bits, sizes in multiples of 128");
  const int choice = rows_choice(a, n_experts);
  MoeMany m{};
  const bool wide = wide_moe_fits(device, a, max_bits);
  m.a = a, m.n_experts = n_experts, m.tile_rows = wide ? kWideRows : 4 * kTileGroups[choice];
  m.chunks1 = moe_chunks(a.dim), m.chunks2 = moe_chunks(a.inter);
  m.max_groups = groups_bound(a.n_rows, a.k, n_experts);
  m.max_tiles = a.n_rows * a.k / m.tile_rows + n_experts + (a.n_rows + m.tile_rows - 1) / m.tile_rows + 1;
  auto* free = static_cast<std::byte*>(a.workspace);
  const auto take = [&](size_t bytes) {
    std::byte* p = free;
    free += aligned(bytes);
    return p;
  };
  const auto groups = static_cast<size_t>(m.max_groups);
  m.entry = reinterpret_cast<int32_t*>(take(groups * 4 * sizeof(int32_t)));
  m.owner = reinterpret_cast<int32_t*>(take(groups * sizeof(int32_t)));
  m.tile = reinterpret_cast<MoeTile*>(take(static_cast<size_t>(m.max_tiles) * sizeof(MoeTile)));
  m.list = reinterpret_cast<int32_t*>(take(static_cast<size_t>(m.max_tiles + 1) * sizeof(int32_t)));
  m.up = reinterpret_cast<uint32_t*>(take(groups * static_cast<size_t>(2 * a.dim / 128) * kGroupBytes));
  m.down = reinterpret_cast<uint32_t*>(take(groups * static_cast<size_t>(a.inter / 128) * kGroupBytes));
  m.part = reinterpret_cast<float*>(free);
  const int n_all = n_experts + (a.shared != nullptr ? 1 : 0);
  group_kernel<<<static_cast<unsigned>((n_all + kWarps - 1) / kWarps), kThreads, 0, gpu::cuda_stream(s)>>>(m);
  DSF_CUDA_TRY(cudaGetLastError());
  up_image_kernel<<<dim3(static_cast<unsigned>(m.max_groups), 2), kThreads, 0, gpu::cuda_stream(s)>>>(m);
  DSF_CUDA_TRY(cudaGetLastError());
  if (wide) DSF_OK(launch_wide_moe(s, device, m, max_bits));
  else DSF_OK((choice == 0 ? launch<kTileGroups[0], 3>(s, m, max_bits) : launch<kTileGroups[1], 2>(s, m, max_bits)));
  sum_kernel<<<dim3(static_cast<unsigned>((a.dim / 4 + kThreads - 1) / kThreads), static_cast<unsigned>(a.n_rows)), kThreads, 0, gpu::cuda_stream(s)>>>(m);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops
