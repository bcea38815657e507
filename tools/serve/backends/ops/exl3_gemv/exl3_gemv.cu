// Two kernels. prepare (only for many rows): one warp per (matrix, row, 128 inputs) transforms and splits the activations. gemv: one thread block per (matrix, chunk of
// k, group of 128-column blocks). Bytes moved: in * out * bits / 8 of weights once, chunks * rows * out * 8 of partial sums through L2.
// Limit on sm_90: issue slots and the shift and multiply pipes up to 5 bits, memory above.
#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_core.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

struct Problem {
  const uint4* lanes;
  const __half *suh, *svh;
  const float* x;
  float* y;
  float* z;             // [chunks][n_rows][out]
  Prepared* rows;       // [n_rows][kb]
  uint32_t* counters;   // [cb]
  int y_stride, kb, cb, bits;
  Plan plan;
  int first_item;
};

struct Launch {
  Problem problem[kExl3GemvMatrices];
  int x_stride, n_rows, n_problems;
  bool prepared;  // by prepare_kernel; otherwise every thread block transforms its own part of x, which costs fewer launches and more work
};

__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ Launch a) {
  release_next();
  const int kb = a.problem[0].kb, lane = threadIdx.x % 32;
  const int task = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int b = task % kb, row = task / kb % a.n_rows, which = task / (kb * a.n_rows);
  if (which >= a.n_problems) return;
  const int k = b * 128 + 4 * lane;
  const float4 suh = half4(a.problem[which].suh, k);
  wait_for_previous();
  const float4 x = *reinterpret_cast<const float4*>(a.problem[which].x + static_cast<int64_t>(row) * a.x_stride + k);
  put_prepared(a.problem[which].rows + row * kb + b, split_row(to_rotated(x, suh, lane)), lane);
}

__device__ void finish_column(const Launch& a, const Problem& p, int column) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int row = warp; row < a.n_rows; row += kWarps) {
    const float* z = p.z + (static_cast<int64_t>(row) * p.cb + column) * 128;
    const float4 sum = sum_parts(z, static_cast<int64_t>(a.n_rows) * p.cb * 128, p.plan.chunks, lane);
    float* y = p.y + static_cast<int64_t>(row) * p.y_stride + column * 128;
    reinterpret_cast<float4*>(y)[lane] = from_rotated(sum, p.svh, column, lane);
  }
}

template <int NB>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) gemv_kernel(const __grid_constant__ Launch a) {
  extern __shared__ __align__(128) uint32_t shared[];
  release_next();
  int which = 0;
  while (which + 1 < a.n_problems && static_cast<int>(blockIdx.x) >= a.problem[which + 1].first_item) ++which;
  const Problem& p = a.problem[which];
  const int index = static_cast<int>(blockIdx.x) - p.first_item, chunk = index / p.plan.groups;
  Item it{};
  it.lanes = p.lanes, it.rows = a.prepared ? p.rows : nullptr, it.x = p.x, it.x_stride = a.x_stride, it.suh = p.suh;
  it.n_rows = a.n_rows, it.kb = p.kb, it.out = p.cb * 128;
  it.z = p.z + static_cast<int64_t>(chunk) * a.n_rows * it.out;
  it.k_begin = chunk * p.kb / p.plan.chunks, it.k_count = (chunk + 1) * p.kb / p.plan.chunks - it.k_begin;
  it.c_begin = index % p.plan.groups * p.plan.columns, it.c_end = min(it.c_begin + p.plan.columns, p.cb);
  run<NB, true>(p.bits, it, shared);
  count_in(p.counters, static_cast<uint32_t>(p.plan.chunks), it.c_begin, it.c_end, shared);
  for (int c = it.c_begin; c < it.c_end; ++c)
    if (shared[c - it.c_begin] != 0) finish_column(a, p, c);
}

// One thread block per 128 x 128 block: word i of lane l's quarter (u, t) is word gK + i of tile (4u + q, 2w + t).
__global__ void repack_kernel(const uint32_t* trellis, uint4* lanes, int kb, int bits, int64_t row_words, int k_begin, int k_count) {
  const int k_block = static_cast<int>(blockIdx.x) % k_count, column = static_cast<int>(blockIdx.x) / k_count;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint4* to = lanes + ((static_cast<int64_t>(column) * kb + k_begin + k_block) * kWarps + warp) * bits * 32 + lane;
  for (int chunk = 0; chunk < bits; ++chunk) {
    uint32_t v[4];
    for (int i = 0; i < 4; ++i) {
      const int word = 4 * chunk + i, part = word / bits, u = part / 2, t = part % 2;
      const int64_t tile_row = k_block * 8 + 4 * u + q;
      const int tile_column = column * 8 + 2 * warp + t;
      v[i] = trellis[tile_row * row_words + tile_column * 8 * bits + g * bits + word % bits];
    }
    to[chunk * 32] = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

template <int NB>
Result<void> launch(const gpu::Stream& s, const Launch& a, int n_items, int depth) {
  DSF_CUDA_TRY(cudaFuncSetAttribute(gemv_kernel<NB>, cudaFuncAttributeMaxDynamicSharedMemorySize, image_bytes<NB>(kMaxChunkBlocks)));
  const int tasks = a.n_problems * a.n_rows * a.problem[0].kb;
  if (a.prepared) DSF_OK(launch_after(prepare_kernel, gpu::cuda_stream(s), dim3(static_cast<unsigned>((tasks + kWarps - 1) / kWarps)), kThreads, 0, a));
  return launch_after(gemv_kernel<NB>, gpu::cuda_stream(s), dim3(static_cast<unsigned>(n_items)), kThreads, static_cast<size_t>(image_bytes<NB>(depth)), a);
}

Result<void> check(const Exl3GemvArgs& a) {
  const bool rows = a.n_rows >= 1 && a.n_rows <= kExl3GemvRows;
  if (!rows || a.outputs.empty() || a.outputs.size() > kExl3GemvMatrices) return fail(Code::kBug, "exl3_gemv", "1 to 16 rows, 1 to 8 matrices");
  for (const auto& o : a.outputs) {
    const auto& w = o.w;
    if (w.in <= 0 || w.out <= 0 || w.in % 128 != 0 || w.out % 128 != 0 || w.bits < 1 || w.bits > 8 || w.in != a.outputs[0].w.in)
      return fail(Code::kBug, "exl3_gemv", "matrix shape");
  }
  return {};
}

size_t sums_bytes(const Exl3Matrix& w, int n_rows, int n_sms) {
  return static_cast<size_t>(plan(w.in, w.out, n_sms).chunks) * static_cast<size_t>(n_rows) * static_cast<size_t>(w.out) * sizeof(float);
}
size_t rows_bytes(const Exl3Matrix& w, int n_rows) { return static_cast<size_t>(n_rows) * static_cast<size_t>(w.in / 128) * sizeof(Prepared); }

}  // namespace
}  // namespace exl3

size_t exl3_gemv_workspace_bytes(std::span<const Exl3GemvArgs::Output> outputs, int n_rows, int n_sms) {
  size_t bytes = 0;
  for (const auto& o : outputs) bytes += exl3::sums_bytes(o.w, std::min(n_rows, 8), n_sms) + exl3::rows_bytes(o.w, std::min(n_rows, 8));
  return bytes;
}

Result<void> exl3_gemv(const gpu::Stream& s, const gpu::Facts& device, const Exl3GemvArgs& a) {
  using namespace exl3;
  DSF_OK(check(a));
  for (int row = 0; row < a.n_rows; row += 8) {
    Launch l{};
    l.n_rows = std::min(a.n_rows - row, 8);
    l.x_stride = a.x_stride;
    l.n_problems = static_cast<int>(a.outputs.size());
    auto* free = static_cast<std::byte*>(a.workspace);
    uint32_t* counters = a.counters;
    int n_items = 0, depth = 0;
    for (int i = 0; i < l.n_problems; ++i) {
      const auto& o = a.outputs[static_cast<size_t>(i)];
      Problem& p = l.problem[i];
      p.lanes = static_cast<const uint4*>(o.w.lanes);
      p.suh = reinterpret_cast<const __half*>(o.w.suh), p.svh = reinterpret_cast<const __half*>(o.w.svh);
      p.x = a.x + static_cast<int64_t>(row) * a.x_stride + o.x_offset;
      p.y = o.y + static_cast<int64_t>(row) * o.y_stride, p.y_stride = o.y_stride;
      p.kb = o.w.in / 128, p.cb = o.w.out / 128, p.bits = o.w.bits;
      p.plan = plan(o.w.in, o.w.out, device.n_sms);
      p.z = reinterpret_cast<float*>(free);
      free += sums_bytes(o.w, l.n_rows, device.n_sms);
      p.rows = reinterpret_cast<Prepared*>(free);
      free += rows_bytes(o.w, l.n_rows);
      p.counters = counters;
      p.first_item = n_items;
      counters += p.cb;
      n_items += p.plan.items();
      depth = std::max(depth, (p.kb + p.plan.chunks - 1) / p.plan.chunks);
    }
    l.prepared = l.n_rows * depth > kOwnPieces;
    DSF_OK(l.n_rows <= 4 ? launch<1>(s, l, n_items, depth) : launch<2>(s, l, n_items, depth));
  }
  return {};
}

Result<void> exl3_repack(const gpu::Stream& s, const void* trellis, void* lanes, int in, int out, int bits, int64_t row_words, int k_begin, int k_count) {
  if (k_count == 0) k_count = in / 128;
  if (in <= 0 || out <= 0 || in % 128 != 0 || out % 128 != 0 || bits < 1 || bits > 8 || k_begin < 0 || k_count < 1 || k_begin + k_count > in / 128)
    return fail(Code::kBug, "exl3_repack", "matrix shape");
  const unsigned blocks = static_cast<unsigned>(k_count) * static_cast<unsigned>(out / 128);
  exl3::repack_kernel<<<blocks, exl3::kThreads, 0, gpu::cuda_stream(s)>>>(static_cast<const uint32_t*>(trellis), static_cast<uint4*>(lanes), in / 128, bits,
                                                                         row_words, k_begin, k_count);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops
