#pragma once
// One launch of exl3_moe_many, as its kernels see it. Included by .cu files only.
#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_image.cuh"

namespace dsf::serve::ops::exl3 {

struct MoeTile {
  int expert, first_group, n_rows;  // expert -1: nothing to do
};
struct MoeMany {
  Exl3MoeArgs a;
  int n_experts;    // routed; the shared one is number n_experts
  int tile_rows, max_groups, max_tiles;
  int chunks1, chunks2;  // of k, for w1 and w3, and for w2: those of exl3_moe
  int32_t* entry;   // [max_groups * 4] row * (k + 1) + choice, ordered by expert; -1: padding. Choice k is the shared expert.
  int32_t* owner;   // [max_groups] expert of a group, -1: none
  MoeTile* tile;    // [max_tiles]
  int32_t* list;    // [1 + max_tiles] for the wide kernels: how many tiles have rows, then which, the large ones first
  uint32_t* up;     // [2][dim / 128][max_groups][kGroupWords]
  uint32_t* down;   // [inter / 128][max_groups][kGroupWords]
  float* part;      // [n_rows][k + 1][dim]
};

__device__ inline const Exl3Expert& expert_of(const MoeMany& m, int expert) { return expert == m.n_experts ? *m.a.shared : m.a.experts[expert]; }

// Products with one matrix: what up_image_kernel or up_tile_row left in `image`, from group `first_group` on.
__device__ inline Tile tile_of(const MoeMany& m, const Exl3Matrix& w, const uint32_t* image, const MoeTile& at, int column, int chunks) {
  const int kb = w.in / 128;
  return {static_cast<const uint4*>(w.lanes) + static_cast<int64_t>(column) * kb * 128 * w.bits, image + static_cast<int64_t>(at.first_group) * kGroupWords,
          static_cast<int64_t>(m.max_groups) * kGroupWords, w.bits, kb, chunks, (at.n_rows + 3) / 4};
}
__device__ inline Tile up_tile(const MoeMany& m, const Exl3Expert& e, int matrix, const MoeTile& at, int column) {
  return tile_of(m, matrix == 0 ? e.w1 : e.w3, m.up + static_cast<int64_t>(matrix) * (m.a.dim / 128) * m.max_groups * kGroupWords, at, column, m.chunks1);
}
__device__ inline Tile down_tile(const MoeMany& m, const Exl3Expert& e, const MoeTile& at, int column) { return tile_of(m, e.w2, m.down, at, column, m.chunks2); }

// One row of a tile's results for w1 in the weights' own basis. One warp, as below.
__device__ inline float4 gate_row(const Exl3Expert& e, int column, const float* g_tile, int row, int lane) {
  return from_rotated(reinterpret_cast<const float4*>(g_tile + row * kTileStride)[lane], reinterpret_cast<const __half*>(e.w1.svh), column, lane);
}

// The activation of a row as image for w2, from gate_row's result and the row's result for w3; zeros for padding behind the last row.
__device__ inline void up_row(const MoeMany& m, const Exl3Expert& e, const MoeTile& at, int column, float4 g, const float* u_tile, int row, int lane) {
  float4 v = make_float4(0, 0, 0, 0);
  if (row < at.n_rows) {
    const float4 u = from_rotated(reinterpret_cast<const float4*>(u_tile + row * kTileStride)[lane], reinterpret_cast<const __half*>(e.w3.svh), column, lane);
    const int entry = m.entry[4 * at.first_group + row], from = entry / (m.a.k + 1), choice = entry % (m.a.k + 1);
    v = swiglu4(g, u, m.a.limit, choice == m.a.k ? 1.0f : m.a.weights[from * m.a.k + choice]);
  }
  const float4 suh = half4(reinterpret_cast<const __half*>(e.w2.suh), column * 128 + 4 * lane);
  uint32_t* const group = m.down + (static_cast<int64_t>(column) * m.max_groups + at.first_group + row / 4) * kGroupWords;
  put_image(group, row % 4, split_row(to_rotated(v, suh, lane)), lane);
}

// One row of a tile's results for w2. One warp.
__device__ inline void down_row(const MoeMany& m, const Exl3Expert& e, const MoeTile& at, int column, const float* result, int row, int lane) {
  const float4 z = reinterpret_cast<const float4*>(result + row * kTileStride)[lane];
  float* const y = m.part + static_cast<int64_t>(m.entry[4 * at.first_group + row]) * m.a.dim + column * 128;
  reinterpret_cast<float4*>(y)[lane] = from_rotated(z, reinterpret_cast<const __half*>(e.w2.svh), column, lane);
}

// w1, w3 and w2 by wgmma, in tiles of kWideRows rows; entries, tiles and the images for w1 and w3 are ready. Defined in exl3_moe_wide.cu.
bool wide_moe_fits(const gpu::Facts& device, const Exl3MoeArgs& a, int max_bits);
Result<void> launch_wide_moe(const gpu::Stream& s, const gpu::Facts& device, const MoeMany& m, int max_bits);

}  // namespace dsf::serve::ops::exl3
