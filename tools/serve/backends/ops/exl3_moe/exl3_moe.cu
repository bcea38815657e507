// Two kernels of many small thread blocks, one per (slot, [matrix,] chunk of k, group of columns); a slot is a distinct expert, the last slot is
// the shared expert. The last thread block of a column of w1 and w3 makes the activation of that column and its prepared form for w2; the
// last one of a column of w2 adds up the slots of every row. Bytes moved: the weights of the distinct experts once.
// Cuts depend on the shapes alone: a row's bits must not depend on how many experts the other rows chose.
#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_core.cuh"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"
#include "tools/serve/backends/ops/exl3_moe/exl3_moe.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

constexpr int kMaxIds = kExl3MoeRows * kExl3MoeChoices;
constexpr int kMaxMoeColumns = 6;

struct Moe {
  Exl3MoeArgs a;
  int max_slots;                   // of routed experts
  int chunks1, chunks2;            // of k, for w1 and w3, and for w2
  int columns1, columns2;          // columns a thread block takes; they do not touch the bits
  float *z1, *z2;                  // [slot][matrix][chunk][n_rows][inter], [slot][chunk][n_rows][dim]
  Prepared* rows2;                 // [slot][n_rows][inter / 128]
  uint32_t *counters1, *counters2; // [slot][inter / 128], [dim / 128]
};

// What one thread block knows about the choice of experts.
struct Choice {
  int id[kMaxIds];
  int rank[kMaxIds];  // slot of the expert: distinct ids in ascending order
  bool first[kMaxIds];
  int n_slots;        // distinct ids
  int expert, n_rows; // of this block's slot
  int row[kExl3MoeRows];
  float weight[kExl3MoeRows];
};

// Fills c for a slot. Every thread calls it; ids and weights must be readable.
__device__ void choose(const Exl3MoeArgs& a, int slot, bool is_shared, Choice& c) {
  const int n = a.n_rows * a.k, i = static_cast<int>(threadIdx.x);
  if (i < n) c.id[i] = a.ids[i];
  if (i == 0) c.expert = -1, c.n_rows = 0;
  __syncthreads();
  bool first = i < n;
  for (int j = 0; j < min(i, n); ++j) first = first && c.id[j] != c.id[i];
  if (i < n) c.first[i] = first;
  const int n_slots = __syncthreads_count(first);
  if (i < n) {
    int rank = 0;
    for (int j = 0; j < n; ++j) rank += c.first[j] && c.id[j] < c.id[i] ? 1 : 0;
    c.rank[i] = rank;
    if (rank == slot) c.expert = c.id[i];
  }
  if (i == 0) c.n_slots = n_slots;
  __syncthreads();
  if (i < 32) {
    int at = is_shared && i < a.n_rows ? 0 : -1;
    if (!is_shared && i < a.n_rows)
      for (int j = 0; j < a.k; ++j)
        if (c.id[i * a.k + j] == c.expert) at = j;
    const uint32_t mask = __ballot_sync(0xffffffffu, at >= 0);
    const int place = __popc(mask & ((1u << i) - 1));
    if (at >= 0) c.row[place] = i, c.weight[place] = is_shared ? 1.0f : a.weights[i * a.k + at];
    if (i == 0) c.n_rows = __popc(mask);
  }
  __syncthreads();
}

__device__ inline const Exl3Expert& expert_of(const Moe& m, int slot, const Choice& c) {
  return slot == m.max_slots ? *m.a.shared : m.a.experts[c.expert];
}

// Activation of one column of 128, for every row of the slot, prepared for w2.
__device__ void finish_up(const Moe& m, int slot, const Choice& c, int column) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Exl3Expert& e = expert_of(m, slot, c);
  const int64_t step = static_cast<int64_t>(m.a.n_rows) * m.a.inter;
  for (int i = warp; i < c.n_rows; i += kWarps) {
    const float* z = m.z1 + slot * 2 * m.chunks1 * step + static_cast<int64_t>(i) * m.a.inter + column * 128;
    const float4 zg = sum_parts(z, step, m.chunks1, lane), zu = sum_parts(z + m.chunks1 * step, step, m.chunks1, lane);
    const float4 g = from_rotated(zg, reinterpret_cast<const __half*>(e.w1.svh), column, lane);
    const float4 u = from_rotated(zu, reinterpret_cast<const __half*>(e.w3.svh), column, lane);
    const float4 v = swiglu4(g, u, m.a.limit, c.weight[i]);
    const float4 suh = half4(reinterpret_cast<const __half*>(e.w2.suh), column * 128 + 4 * lane);
    put_prepared(m.rows2 + static_cast<int64_t>(slot * m.a.n_rows + i) * (m.a.inter / 128) + column, split_row(to_rotated(v, suh, lane)), lane);
  }
}

template <bool Many>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) moe_up_kernel(const __grid_constant__ Moe m) {
  extern __shared__ __align__(128) uint32_t shared[];
  __shared__ Choice choice;
  wait_for_previous();
  release_next();  // after the wait: the kernel behind may read the ids at once
  const int cb = m.a.inter / 128, groups = (cb + m.columns1 - 1) / m.columns1, per_slot = 2 * m.chunks1 * groups;
  const int n_slots = m.max_slots + (m.a.shared != nullptr ? 1 : 0);
  const int slot = n_slots - 1 - static_cast<int>(blockIdx.x) / per_slot, index = static_cast<int>(blockIdx.x) % per_slot;
  choose(m.a, slot, slot == m.max_slots, choice);
  if (choice.n_rows == 0) return;
  const Exl3Expert& e = expert_of(m, slot, choice);
  const int matrix = index / (m.chunks1 * groups), chunk = index / groups % m.chunks1;
  const Exl3Matrix& w = matrix == 0 ? e.w1 : e.w3;
  Item it{};
  it.lanes = static_cast<const uint4*>(w.lanes), it.x = m.a.x, it.x_stride = m.a.dim, it.suh = reinterpret_cast<const __half*>(w.suh);
  it.row_index = choice.row;
  it.n_rows = choice.n_rows, it.kb = m.a.dim / 128, it.out = m.a.inter;
  it.z = m.z1 + (static_cast<int64_t>(slot * 2 + matrix) * m.chunks1 + chunk) * m.a.n_rows * m.a.inter;
  it.k_begin = chunk * it.kb / m.chunks1, it.k_count = (chunk + 1) * it.kb / m.chunks1 - it.k_begin;
  it.c_begin = index % groups * m.columns1, it.c_end = min(it.c_begin + m.columns1, cb);
  if (!Many || choice.n_rows <= 4) run<1, false>(w.bits, it, shared);
  else if constexpr (Many) run<2, false>(w.bits, it, shared);
  count_in(m.counters1 + slot * cb, static_cast<uint32_t>(2 * m.chunks1), it.c_begin, it.c_end, shared);
  for (int c = it.c_begin; c < it.c_end; ++c)
    if (shared[c - it.c_begin] != 0) finish_up(m, slot, choice, c);
}

// One column of 128 of y: the slots of each row in ascending order. `part`: shared, [n_rows][k + 1][128].
__device__ void finish_down(const Moe& m, const Choice& c, int column, float* part) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool has_shared = m.a.shared != nullptr;
  const int per_row = m.a.k + (has_shared ? 1 : 0);
  const int64_t step = static_cast<int64_t>(m.a.n_rows) * m.a.dim;
  __syncthreads();
  for (int task = warp; task < m.a.n_rows * per_row; task += kWarps) {
    const int row = task / per_row, j = task % per_row;
    int slot = m.max_slots, place = row, order = m.a.k;
    if (j < m.a.k) {
      const int* own = c.id + row * m.a.k;
      slot = c.rank[row * m.a.k + j], place = 0, order = 0;
      for (int i = 0; i < row * m.a.k; ++i) place += c.id[i] == own[j] ? 1 : 0;
      for (int i = 0; i < m.a.k; ++i) order += own[i] < own[j] ? 1 : 0;
    }
    const Exl3Expert& e = j < m.a.k ? m.a.experts[c.id[row * m.a.k + j]] : *m.a.shared;
    const float* z = m.z2 + slot * m.chunks2 * step + static_cast<int64_t>(place) * m.a.dim + column * 128;
    const float4 y = from_rotated(sum_parts(z, step, m.chunks2, lane), reinterpret_cast<const __half*>(e.w2.svh), column, lane);
    reinterpret_cast<float4*>(part + (row * per_row + order) * 128)[lane] = y;
  }
  __syncthreads();
  for (int row = warp; row < m.a.n_rows; row += kWarps) {
    float4 y = make_float4(0, 0, 0, 0);
    for (int j = 0; j < per_row; ++j) y = add4(y, reinterpret_cast<const float4*>(part + (row * per_row + j) * 128)[lane]);
    reinterpret_cast<float4*>(m.a.y + static_cast<int64_t>(row) * m.a.dim + column * 128)[lane] = y;
  }
  __syncthreads();
}

template <bool Many>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) moe_down_kernel(const __grid_constant__ Moe m) {
  extern __shared__ __align__(128) uint32_t shared[];
  __shared__ Choice choice;
  __shared__ uint32_t is_last[kMaxMoeColumns];
  const int cb = m.a.dim / 128, groups = (cb + m.columns2 - 1) / m.columns2, per_slot = m.chunks2 * groups;
  const int n_slots = m.max_slots + (m.a.shared != nullptr ? 1 : 0);
  const int slot = n_slots - 1 - static_cast<int>(blockIdx.x) / per_slot, index = static_cast<int>(blockIdx.x) % per_slot;
  choose(m.a, slot, slot == m.max_slots, choice);  // ids were complete before moe_up_kernel released this one
  if (choice.n_rows == 0) {
    wait_for_previous();
    release_next();
    return;
  }
  const Exl3Matrix& w = expert_of(m, slot, choice).w2;
  const int chunk = index / groups;
  Item it{};
  it.lanes = static_cast<const uint4*>(w.lanes), it.n_rows = choice.n_rows, it.kb = m.a.inter / 128, it.out = m.a.dim;
  it.rows = m.rows2 + static_cast<int64_t>(slot) * m.a.n_rows * it.kb;
  it.z = m.z2 + (static_cast<int64_t>(slot) * m.chunks2 + chunk) * m.a.n_rows * m.a.dim;
  it.k_begin = chunk * it.kb / m.chunks2, it.k_count = (chunk + 1) * it.kb / m.chunks2 - it.k_begin;
  it.c_begin = index % groups * m.columns2, it.c_end = min(it.c_begin + m.columns2, cb);
  if (!Many || choice.n_rows <= 4) run<1, true>(w.bits, it, shared);
  else if constexpr (Many) run<2, true>(w.bits, it, shared);
  release_next();
  const uint32_t expected = static_cast<uint32_t>((choice.n_slots + (m.a.shared != nullptr ? 1 : 0)) * m.chunks2);
  count_in(m.counters2, expected, it.c_begin, it.c_end, is_last);
  for (int c = it.c_begin; c < it.c_end; ++c)
    if (is_last[c - it.c_begin] != 0) finish_down(m, choice, c, reinterpret_cast<float*>(shared));
}

// As few thread blocks as fill the device once, but no more than `most` columns each; a few more than fit at once would be a second round of few: then
// smaller ones (measured: docs/performance-exl3.md). columns: of the matrix; pieces: that are cut into columns.
int columns_for(int pieces, int columns, int n_sms, int most) {
  const int slots = n_sms * kBlocksPerSm, fit = std::clamp(pieces * columns / (slots - 28), 1, most);
  return fit > 1 && fit < most && pieces * ((columns + fit - 1) / fit) > slots ? fit - 1 : fit;
}
int slots_of(int n_rows, int k) { return n_rows * k + 1; }

template <bool Many>
Result<void> launch(const gpu::Stream& s, const Moe& m) {
  const int depth1 = (m.a.dim / 128 + m.chunks1 - 1) / m.chunks1, depth2 = (m.a.inter / 128 + m.chunks2 - 1) / m.chunks2;
  const int sums = m.a.n_rows * (m.a.k + 1) * 512;
  const int bytes1 = image_bytes<Many ? 2 : 1>(depth1), bytes2 = std::max(image_bytes<Many ? 2 : 1>(depth2), sums);
  DSF_CUDA_TRY(cudaFuncSetAttribute(moe_up_kernel<Many>, cudaFuncAttributeMaxDynamicSharedMemorySize, image_bytes<2>(kMaxChunkBlocks)));
  DSF_CUDA_TRY(cudaFuncSetAttribute(moe_down_kernel<Many>, cudaFuncAttributeMaxDynamicSharedMemorySize, image_bytes<2>(kMaxChunkBlocks)));
  const int n_slots = m.max_slots + (m.a.shared != nullptr ? 1 : 0);
  const int groups1 = (m.a.inter / 128 + m.columns1 - 1) / m.columns1, groups2 = (m.a.dim / 128 + m.columns2 - 1) / m.columns2;
  const auto blocks1 = static_cast<unsigned>(n_slots * 2 * m.chunks1 * groups1), blocks2 = static_cast<unsigned>(n_slots * m.chunks2 * groups2);
  DSF_OK(launch_after(moe_up_kernel<Many>, gpu::cuda_stream(s), dim3(blocks1), kThreads, static_cast<size_t>(bytes1), m));
  return launch_after(moe_down_kernel<Many>, gpu::cuda_stream(s), dim3(blocks2), kThreads, static_cast<size_t>(bytes2), m);
}

size_t z1_bytes(int n_rows, int k, int dim, int inter) {
  return static_cast<size_t>(slots_of(n_rows, k)) * 2 * static_cast<size_t>(moe_chunks(dim) * n_rows) * static_cast<size_t>(inter) * sizeof(float);
}
size_t z2_bytes(int n_rows, int k, int dim, int inter) {
  return static_cast<size_t>(slots_of(n_rows, k)) * static_cast<size_t>(moe_chunks(inter) * n_rows) * static_cast<size_t>(dim) * sizeof(float);
}

}  // namespace
}  // namespace exl3

size_t exl3_moe_workspace_bytes(int n_rows, int k, int dim, int inter) {
  using namespace exl3;
  return z1_bytes(n_rows, k, dim, inter) + z2_bytes(n_rows, k, dim, inter) +
         static_cast<size_t>(slots_of(n_rows, k) * n_rows * (inter / 128)) * sizeof(Prepared);
}

size_t exl3_moe_counters(int n_rows, int k, int dim, int inter) {
  return static_cast<size_t>(exl3::slots_of(n_rows, k) * (inter / 128) + dim / 128);
}

Result<void> exl3_moe(const gpu::Stream& s, const gpu::Facts& device, const Exl3MoeArgs& a) {
  using namespace exl3;
  if (a.n_rows < 1 || a.n_rows > kExl3MoeRows || a.k < 1 || a.k > kExl3MoeChoices || a.dim <= 0 || a.inter <= 0 || a.dim % 128 != 0 || a.inter % 128 != 0)
    return fail(Code::kBug, "exl3_moe", "1 to 8 rows, 1 to 8 choices, sizes in multiples of 128");
  Moe m{};
  m.a = a;
  m.max_slots = a.n_rows * a.k;
  m.chunks1 = moe_chunks(a.dim), m.chunks2 = moe_chunks(a.inter);
  const int n_slots = m.max_slots + (a.shared != nullptr ? 1 : 0);
  m.columns1 = columns_for(n_slots * 2 * m.chunks1, a.inter / 128, device.n_sms, 6);
  m.columns2 = columns_for(n_slots * m.chunks2, a.dim / 128, device.n_sms, 2);
  auto* free = static_cast<std::byte*>(a.workspace);
  m.z1 = reinterpret_cast<float*>(free), free += z1_bytes(a.n_rows, a.k, a.dim, a.inter);
  m.z2 = reinterpret_cast<float*>(free), free += z2_bytes(a.n_rows, a.k, a.dim, a.inter);
  m.rows2 = reinterpret_cast<Prepared*>(free);
  m.counters1 = a.counters, m.counters2 = a.counters + slots_of(a.n_rows, a.k) * (a.inter / 128);
  return a.n_rows <= 4 ? launch<false>(s, m) : launch<true>(s, m);
}

}  // namespace dsf::serve::ops
