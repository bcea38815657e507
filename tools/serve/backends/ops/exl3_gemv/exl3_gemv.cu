// Grid: one thread block per (matrix, chunk of k, group of 128-column blocks), 128 threads. Shared memory: the activation image of the chunk,
// then its row scales. Bytes moved: in * out * bits / 8 of weights once, plus chunks * rows * out * 8 of partial sums through L2.
// Limit: the shift and multiply pipes for bits <= 5 on sm_90, memory otherwise.
#include "tools/serve/backends/ops/exl3_gemv/exl3_core.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"
#include "dsf/gpu/cuda.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

struct Problem {
  const uint4* lanes;
  const __half *suh, *svh;
  float* y;
  float* z;             // [chunks, n_rows, out]
  uint32_t* counters;   // [out / 128]
  int y_stride, out, kb, cb, bits;
  Plan plan;
  int first_item;
};

struct Launch {
  Problem problem[kExl3GemvMatrices];
  const float* x;
  int x_stride, n_rows, n_problems;
};

struct Item {
  int chunk, k_begin, k_count, c_begin, c_end;
};

// Chunk c covers the blocks [c * kb / chunks, (c + 1) * kb / chunks).
__device__ int chunk_begin(int chunk, int chunks, int kb) { return chunk * kb / chunks; }

__device__ Item item_of(const Problem& p, int index) {
  Item it;
  it.chunk = index / p.plan.groups;
  const int group = index % p.plan.groups;
  it.k_begin = chunk_begin(it.chunk, p.plan.chunks, p.kb);
  it.k_count = chunk_begin(it.chunk + 1, p.plan.chunks, p.kb) - it.k_begin;
  it.c_begin = group * p.plan.columns;
  it.c_end = min(it.c_begin + p.plan.columns, p.cb);
  return it;
}

template <int NB>
__device__ void make_image(const Launch& a, const Problem& p, const Item& it, uint32_t* image, RowScale* scale) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int b = warp, row = 0;; b += kWarps) {
    while (b >= it.k_count) b -= it.k_count, ++row;
    if (row >= a.n_rows) break;
    const int k = (it.k_begin + b) * 128 + 4 * lane;
    const float4 x = *reinterpret_cast<const float4*>(a.x + static_cast<int64_t>(row) * a.x_stride + k);
    float4 v = hadamard128(mul4(x, half4(p.suh, k)), lane);
    v = mul4(v, make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
    put_row<NB>(image + b * NB * 1024, scale + b * 4 * NB, row, v, lane);
  }
}

template <int NB>
__device__ void store_sums(const Launch& a, const Problem& p, const Item& it, int column, const Sums<NB>& sums) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const int row = 4 * nb + q;
    if (row >= a.n_rows) continue;
    float* z = p.z + static_cast<int64_t>(it.chunk * a.n_rows + row) * p.out + column * 128 + warp * 32 + g;
#pragma unroll
    for (int t = 0; t < 2; ++t) z[16 * t] = sums.v[t][nb][0], z[16 * t + 8] = sums.v[t][nb][1];
  }
}

template <int K, int NB>
__device__ void columns(const Launch& a, const Problem& p, const Item& it, uint32_t* image, RowScale* scale) {
  constexpr int kBlockVectors = kWarps * K * 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint4* block = p.lanes + (static_cast<int64_t>(it.c_begin) * p.kb + it.k_begin) * kBlockVectors + warp * K * 32;
  const int64_t column_step = static_cast<int64_t>(p.kb - it.k_count + 1) * kBlockVectors;
  Stream<K> s;
  s.template fill_range<0, K>(block, lane);
  make_image<NB>(a, p, it, image, scale);
  image_ready();
  for (int column = it.c_begin; column < it.c_end; ++column) {
    Sums<NB> sums{};
    for (int b = 0; b < it.k_count; ++b) {
      const bool last = b + 1 == it.k_count;
      const uint4* next = block + (last ? column + 1 == it.c_end ? 0 : column_step : kBlockVectors);
      block_product<K, NB>(s, sums, image + b * NB * 1024, scale + b * 4 * NB, next, lane);
      block = next;
    }
    store_sums<NB>(a, p, it, column, sums);
  }
}

// Counts this chunk in for each of its columns; bit i of the answer: this thread block was the last of column c_begin + i.
__device__ void count_in(const Problem& p, const Item& it, uint32_t* is_last) {
  __syncthreads();
  for (int c = it.c_begin + static_cast<int>(threadIdx.x); c < it.c_end; c += kThreads) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(p.counters + c) : "memory");
    const bool last = before + 1 == static_cast<uint32_t>(p.plan.chunks);
    is_last[c - it.c_begin] = last ? 1 : 0;
    if (last) p.counters[c] = 0;
  }
  __syncthreads();
}

__device__ void finish_column(const Launch& a, const Problem& p, int column) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int col = column * 128 + 4 * lane;
  for (int row = warp; row < a.n_rows; row += kWarps) {
    float4 sum = make_float4(0, 0, 0, 0);
    for (int chunk = 0; chunk < p.plan.chunks; ++chunk) {
      const float4 z = __ldcg(reinterpret_cast<const float4*>(p.z + static_cast<int64_t>(chunk * a.n_rows + row) * p.out + col));
      sum.x += z.x, sum.y += z.y, sum.z += z.z, sum.w += z.w;
    }
    float4 y = mul4(hadamard128(sum, lane), half4(p.svh, col));
    y = mul4(y, make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
    *reinterpret_cast<float4*>(p.y + static_cast<int64_t>(row) * p.y_stride + col) = y;
  }
}

template <int NB>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) gemv_kernel(const __grid_constant__ Launch a) {
  extern __shared__ __align__(128) uint32_t shared[];
  int which = 0;
  while (which + 1 < a.n_problems && static_cast<int>(blockIdx.x) >= a.problem[which + 1].first_item) ++which;
  const Problem& p = a.problem[which];
  const Item it = item_of(p, static_cast<int>(blockIdx.x) - p.first_item);
  RowScale* scale = reinterpret_cast<RowScale*>(shared + it.k_count * NB * 1024);
  switch (p.bits) {
    case 1: columns<1, NB>(a, p, it, shared, scale); break;
    case 2: columns<2, NB>(a, p, it, shared, scale); break;
    case 3: columns<3, NB>(a, p, it, shared, scale); break;
    case 4: columns<4, NB>(a, p, it, shared, scale); break;
    case 5: columns<5, NB>(a, p, it, shared, scale); break;
    case 6: columns<6, NB>(a, p, it, shared, scale); break;
    case 7: columns<7, NB>(a, p, it, shared, scale); break;
    default: columns<8, NB>(a, p, it, shared, scale); break;
  }
  count_in(p, it, shared);
  for (int c = it.c_begin; c < it.c_end; ++c)
    if (shared[c - it.c_begin] != 0) finish_column(a, p, c);
}

// One thread block per 128 x 128 block and column tile pair: word i of lane l's quarter (u, t) is word gK + i of tile (4u + q, 2w + t).
__global__ void repack_kernel(const uint32_t* trellis, uint4* lanes, int kb, int bits, int64_t row_words) {
  const int k_block = static_cast<int>(blockIdx.x) % kb, column = static_cast<int>(blockIdx.x) / kb;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint4* to = lanes + static_cast<int64_t>(blockIdx.x) * kWarps * bits * 32 + warp * bits * 32 + lane;
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

// One entry for the two instances of the kernel, so that attributes are set once per device and instance.
template <int NB>
Result<void> launch(const gpu::Stream& s, const Launch& a, int n_items, int max_depth) {
  const int bytes = image_bytes<NB>(max_depth);
  DSF_CUDA_TRY(cudaFuncSetAttribute(gemv_kernel<NB>, cudaFuncAttributeMaxDynamicSharedMemorySize, image_bytes<NB>(kMaxChunkBlocks)));
  gemv_kernel<NB><<<static_cast<unsigned>(n_items), kThreads, static_cast<size_t>(bytes), gpu::cuda_stream(s)>>>(a);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

Result<void> check(const Exl3GemvArgs& a) {
  const bool rows = a.n_rows >= 1 && a.n_rows <= kExl3GemvRows;
  if (!rows || a.outputs.empty() || a.outputs.size() > kExl3GemvMatrices) return fail(Code::kBug, "exl3_gemv", "1 to 16 rows, 1 to 4 matrices");
  for (const auto& o : a.outputs) {
    const auto& w = o.w;
    if (w.in <= 0 || w.out <= 0 || w.in % 128 != 0 || w.out % 128 != 0 || w.bits < 1 || w.bits > 8 || w.in != a.outputs[0].w.in)
      return fail(Code::kBug, "exl3_gemv", "matrix shape");
  }
  return {};
}

}  // namespace
}  // namespace exl3

size_t exl3_gemv_workspace_bytes(int in, int out, int n_rows, int n_sms) {
  return static_cast<size_t>(exl3::plan(in, out, n_sms).chunks) * static_cast<size_t>(n_rows < 8 ? n_rows : 8) * static_cast<size_t>(out) * sizeof(float);
}

Result<void> exl3_gemv(const gpu::Stream& s, const gpu::Facts& device, const Exl3GemvArgs& a) {
  using namespace exl3;
  DSF_OK(check(a));
  for (int row = 0; row < a.n_rows; row += 8) {
    Launch l{};
    l.n_rows = a.n_rows - row < 8 ? a.n_rows - row : 8;
    l.x = a.x + static_cast<int64_t>(row) * a.x_stride;
    l.x_stride = a.x_stride;
    l.n_problems = static_cast<int>(a.outputs.size());
    float* z = static_cast<float*>(a.workspace);
    uint32_t* counters = a.counters;
    int n_items = 0, depth = 0;
    for (int i = 0; i < l.n_problems; ++i) {
      const auto& o = a.outputs[static_cast<size_t>(i)];
      const Plan pl = plan(o.w.in, o.w.out, device.n_sms);
      l.problem[i] = Problem{static_cast<const uint4*>(o.w.lanes), reinterpret_cast<const __half*>(o.w.suh), reinterpret_cast<const __half*>(o.w.svh),
                             o.y + static_cast<int64_t>(row) * o.y_stride, z, counters, o.y_stride, o.w.out, o.w.in / 128, o.w.out / 128,
                             o.w.bits, pl, n_items};
      z += static_cast<int64_t>(pl.chunks) * l.n_rows * o.w.out;
      counters += o.w.out / 128;
      n_items += pl.items();
      depth = std::max(depth, (o.w.in / 128 + pl.chunks - 1) / pl.chunks);
    }
    DSF_OK(l.n_rows <= 4 ? launch<1>(s, l, n_items, depth) : launch<2>(s, l, n_items, depth));
  }
  return {};
}

Result<void> exl3_repack(const gpu::Stream& s, const void* trellis, void* lanes, int in, int out, int bits, int64_t row_words) {
  if (in <= 0 || out <= 0 || in % 128 != 0 || out % 128 != 0 || bits < 1 || bits > 8) return fail(Code::kBug, "exl3_repack", "matrix shape");
  const unsigned blocks = static_cast<unsigned>(in / 128) * static_cast<unsigned>(out / 128);
  exl3::repack_kernel<<<blocks, exl3::kThreads, 0, gpu::cuda_stream(s)>>>(static_cast<const uint32_t*>(trellis), static_cast<uint4*>(lanes), in / 128, bits,
                                                                         row_words);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops
