#pragma once
// One launch of exl3_gemm, as its kernels see it. Included by .cu files only.
#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_image.cuh"

namespace dsf::serve::ops::exl3 {

struct GemmProblem {
  const uint4* lanes;
  const __half *suh, *svh;
  const float* x;
  float* y;
  uint32_t* image;
  int y_stride, cb, bits, chunks, first_item;
};
struct GemmLaunch {
  GemmProblem problem[kExl3GemvMatrices];
  int x_stride, n_rows, n_problems, kb, tiles, n_items;
};

struct GemmItem {
  Tile tile;
  int column, first_row, n_rows;
};
// Item `index` of the launch: the tiles of a column stand beside each other.
__device__ inline const GemmProblem& gemm_item(const GemmLaunch& a, int index, int tile_rows, GemmItem& item) {
  int which = 0;
  while (which + 1 < a.n_problems && index >= a.problem[which + 1].first_item) ++which;
  const GemmProblem& p = a.problem[which];
  item.column = (index - p.first_item) / a.tiles, item.first_row = (index - p.first_item) % a.tiles * tile_rows;
  item.n_rows = min(a.n_rows - item.first_row, tile_rows);
  item.tile = {p.lanes + static_cast<int64_t>(item.column) * a.kb * 128 * p.bits, p.image + static_cast<int64_t>(item.first_row / 4) * kGroupWords,
               static_cast<int64_t>((a.n_rows + 3) / 4) * kGroupWords, p.bits, a.kb, p.chunks, (item.n_rows + 3) / 4};
  return p;
}

// One row of a result tile to y. One warp.
__device__ inline void store_row(const GemmProblem& p, const GemmItem& item, const float* result, int row, int lane) {
  const float4 z = reinterpret_cast<const float4*>(result + row * kTileStride)[lane];
  float* const y = p.y + static_cast<int64_t>(item.first_row + row) * p.y_stride + item.column * 128;
  reinterpret_cast<float4*>(y)[lane] = from_rotated(z, p.svh, item.column, lane);
}

// Cuts the launch into tiles of `rows` rows.
inline void set_tiles(GemmLaunch& a, int rows) {
  a.tiles = (a.n_rows + rows - 1) / rows, a.n_items = 0;
  for (int i = 0; i < a.n_problems; ++i) a.problem[i].first_item = a.n_items, a.n_items += a.problem[i].cb * a.tiles;
}

// By wgmma, the images being ready; bits: the widest matrix. Defined in exl3_gemm_wide.cu.
Result<void> launch_wide_gemm(const gpu::Stream& s, const gpu::Facts& device, GemmLaunch& a, int bits);

}  // namespace dsf::serve::ops::exl3
