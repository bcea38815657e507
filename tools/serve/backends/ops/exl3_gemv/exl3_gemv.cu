// Grid: as many thread blocks as SMs, cut over the matrices in proportion to their size. Shared memory: activation image of the block's chunks of
// k, then row scales; reused for sums at the end. Bytes moved: in * out * bits / 8 of weights once, plus about two partial sums of 512
// bytes per team and row through L2. Limit on sm_90: issue slots and the shift and multiply pipes up to 5 bits, memory above.
#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_core.cuh"
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"

namespace dsf::serve::ops {
namespace exl3 {
namespace {

#ifdef TRACE
__device__ long long g_trace[1024][6];
#define STAMP(i) do { if (threadIdx.x == 0 && blockIdx.x < 1024) { long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); g_trace[blockIdx.x][i] = t; } } while (0)
#else
#define STAMP(i)
#endif
constexpr int kMaxComplete = 512;           // runs of one thread block, at most: 262,144 outputs over 132 SMs need 40
constexpr int kFinishBytes = 48 * 8 * 512;  // sums of 8 rows and 48 groups of eight parts

struct Problem {
  const uint4* lanes;
  const __half *suh, *svh;
  float* y;
  float* z;            // [runs + teams][n_rows][128]: a team's part of one run, slot run + team
  uint32_t* counters;  // [out / 128]
  int y_stride, kb, cb, depth, bits;
  uint32_t blocks, teams;   // T and W of tuning.h
  int runs;            // chunks * cb
  int first;           // of its thread blocks in the grid
};

struct Launch {
  Problem problem[kExl3GemvMatrices];
  const float* x;
  int x_stride, n_rows, n_problems;
};

// A run is one column of one chunk: blocks [run * depth, (run + 1) * depth); run = chunk * cb + column.
// 32-bit divisions: the launcher checks that blocks * (teams + 1) fits.
__device__ inline int team_begin(const Problem& p, int team) { return static_cast<int>(static_cast<uint32_t>(team) * p.blocks / p.teams); }
__device__ inline int team_of(const Problem& p, int block) { return static_cast<int>((static_cast<uint32_t>(block + 1) * p.teams - 1) / p.blocks); }

struct Range {
  int begin, end;    // blocks of this thread block
  int first_chunk;
};

__device__ inline Range range_of(const Problem& p, int index) {
  Range r;
  const int teams = static_cast<int>(p.teams);
  r.begin = team_begin(p, min(index * kTeams, teams));
  r.end = team_begin(p, min(index * kTeams + kTeams, teams));
  r.first_chunk = r.begin / p.depth / p.cb;
  return r;
}

// One 128-value piece of the image: of which row and which block of k, and its inputs.
struct Piece {
  float4 x, suh;
};

__device__ inline Piece load_piece(const Launch& a, const Problem& p, int k_block, int row, int lane) {
  const int k = k_block * 128 + 4 * lane;
  return Piece{*reinterpret_cast<const float4*>(a.x + static_cast<int64_t>(row) * a.x_stride + k), half4(p.suh, k)};
}

// Whether block i of the image (chunk first_chunk + i / depth) is read by anyone in the range.
__device__ inline bool is_needed(const Problem& p, const Range& r, int i) {
  const int chunk = r.first_chunk + i / p.depth, k = i % p.depth;
  const int begin = max(r.begin, chunk * p.cb * p.depth), end = min(r.end, (chunk + 1) * p.cb * p.depth);
  const int offset = k - begin % p.depth;
  return (offset < 0 ? offset + p.depth : offset) < end - begin;
}

// Walks over the pieces of one warp: every kWarps-th of (rows x needed blocks), needed blocks first.
struct Walk {
  bool mine;       // this lane's block is needed; lanes stand for image blocks
  int rank, n;     // its number among the needed; their count
  int at, row;
  __device__ Walk(const Problem& p, const Range& r, int n_image, int warp, int lane) {
    mine = lane < n_image && is_needed(p, r, lane);
    const uint32_t mask = __ballot_sync(0xffffffffu, mine);
    rank = __popc(mask & ((1u << lane) - 1)), n = __popc(mask);
    at = warp, row = 0;
    settle();
  }
  __device__ void settle() {
    while (at >= n) at -= n, ++row;
  }
  __device__ void step() { at += kWarps, settle(); }
  __device__ int block() const { return __ffs(static_cast<int>(__ballot_sync(0xffffffffu, mine && rank == at))) - 1; }
};

template <int NB>
__device__ void put_piece(const Piece& piece, uint32_t* image, RowScale* scale, int i, int row, int lane) {
  float4 v = hadamard128(mul4(piece.x, piece.suh), lane);
  v = mul4(v, make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
  put_row<NB>(image + i * NB * kImageWords, scale + i * 4 * NB, row, v, lane);
}

template <int NB>
__device__ void store_sums(const Launch& a, const Problem& p, int slot, const Sums<NB>& sums) {
  const int warp = threadIdx.x % kTeam / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const int row = 4 * nb + q;
    if (row >= a.n_rows) continue;
    float* z = p.z + (static_cast<int64_t>(slot) * a.n_rows + row) * 128 + warp * 32 + g;
#pragma unroll
    for (int t = 0; t < 2; ++t) z[16 * t] = sums.v[t][nb][0], z[16 * t + 8] = sums.v[t][nb][1];
  }
}

// Weights of block f for this warp: [column][k block][warp] in memory.
template <int K>
__device__ inline const uint4* weights_of(const Problem& p, int f, int warp) {
  const int run = f / p.depth, chunk = run / p.cb, column = run % p.cb;
  const int64_t block = static_cast<int64_t>(column) * p.kb + chunk * p.depth + f % p.depth;
  return p.lanes + (block * kTeamWarps + warp) * (K * 32);
}

template <int K, int NB>
__device__ void stream(const Launch& a, const Problem& p, const Range& r, int index, uint32_t* image, RowScale* scale, int n_image) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int team = index * kTeams + static_cast<int>(threadIdx.x) / kTeam;
  Walk walk(p, r, n_image, warp, lane);
  Piece piece;  // asked for before the weights, which would queue in front of it
  int i = walk.block();
  if (walk.row < a.n_rows) piece = load_piece(a, p, r.first_chunk * p.depth + i, walk.row, lane);

  int f = team < static_cast<int>(p.teams) ? team_begin(p, team) : 0;
  const int end = team < static_cast<int>(p.teams) ? team_begin(p, team + 1) : 0;
  const uint4* block = weights_of<K>(p, f, warp % kTeamWarps);
  Stream<K> s;
  s.template fill_range<0, K>(block, lane);

  while (walk.row < a.n_rows) {
    const Piece now = piece;
    const int now_i = i, now_row = walk.row;
    walk.step();
    i = walk.block();
    if (walk.row < a.n_rows) piece = load_piece(a, p, r.first_chunk * p.depth + i, walk.row, lane);
    put_piece<NB>(now, image, scale, now_i, now_row, lane);
  }
  __syncthreads();
  STAMP(1);

  while (f < end) {
    const int run = f / p.depth;
    const int run_end = min(end, (run + 1) * p.depth);
    const int at = (run / p.cb - r.first_chunk) * p.depth - run * p.depth;  // image block of f is at + f
    const uint4* next_run = weights_of<K>(p, run_end < end ? run_end : f, warp % kTeamWarps);
    Sums<NB> sums{};
    for (; f < run_end; ++f) {
      const uint4* next = f + 1 < run_end ? block + kTeamWarps * K * 32 : next_run;
      block_product<K, NB>(s, sums, image + (at + f) * NB * kImageWords, scale + (at + f) * 4 * NB, next, lane);
      block = next;
    }
    store_sums<NB>(a, p, run + team, sums);
  }
}

// How many thread blocks add to a column.
__device__ inline uint32_t arrivals(const Problem& p, int column) {
  uint32_t n = 0;
  for (int run = column; run < p.runs; run += p.cb)
    n += static_cast<uint32_t>(team_of(p, (run + 1) * p.depth - 1) / kTeams - team_of(p, run * p.depth) / kTeams + 1);
  return n;
}

// Counts this thread block in, once for each run it touched; collects the columns that are complete now.
__device__ void count_in(const Problem& p, const Range& r, int* complete, int* n_complete) {
  __syncthreads();
  if (threadIdx.x == 0) *n_complete = 0;
  __syncthreads();
  const int last_run = (r.end - 1) / p.depth;
  for (int run = r.begin / p.depth + static_cast<int>(threadIdx.x); run <= last_run; run += kThreads) {
    const int column = run % p.cb;
    if (count_one(p.counters + column) + 1 == arrivals(p, column)) {
      p.counters[column] = 0;
      complete[atomicAdd(n_complete, 1)] = column;
    }
  }
  __syncthreads();
}

// The sum of parts [8 * group, 8 * group + 8) of a column's parts in their order; four columns a lane.
__device__ float4 sum_group(const Launch& a, const Problem& p, int column, int row, int group, int lane) {
  float4 part[8];
  int index = -8 * group;
#pragma unroll
  for (int i = 0; i < 8; ++i) part[i] = make_float4(0, 0, 0, 0);
  for (int run = column; run < p.runs; run += p.cb) {
    const int first = team_of(p, run * p.depth), last = team_of(p, (run + 1) * p.depth - 1);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int team = first + i - index;
      if (team >= first && team <= last)
        part[i] = __ldcg(reinterpret_cast<const float4*>(p.z + (static_cast<int64_t>(run + team) * a.n_rows + row) * 128) + lane);
    }
    index += last - first + 1;
  }
  float4 sum = part[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) sum = add4(sum, part[i]);
  return sum;
}

__device__ inline int count_parts(const Problem& p, int column) {
  int n = 0;
  for (int run = column; run < p.runs; run += p.cb) n += team_of(p, (run + 1) * p.depth - 1) - team_of(p, run * p.depth) + 1;
  return n;
}

__device__ void put_outputs(const Problem& p, int column, int row, float4 sum, int lane) {
  const int col = column * 128 + 4 * lane;
  float4 y = mul4(hadamard128(sum, lane), half4(p.svh, col));
  y = mul4(y, make_float4(kInvSqrt128, kInvSqrt128, kInvSqrt128, kInvSqrt128));
  *reinterpret_cast<float4*>(p.y + static_cast<int64_t>(row) * p.y_stride + col) = y;
}

// Adds up the complete columns: parts in groups of eight, then the groups in order. Many sums: a warp takes a whole one; few: a warp takes a
// group, through shared memory. The order of additions is the same.
__device__ void finish(const Launch& a, const Problem& p, const int* complete, int n_complete, float* sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (n_complete * a.n_rows >= kWarps) {
    for (int task = warp; task < n_complete * a.n_rows; task += kWarps) {
      const int column = complete[task / a.n_rows], row = task % a.n_rows;
      const int groups = (count_parts(p, column) + 7) / 8;
      float4 sum = make_float4(0, 0, 0, 0);
      for (int g = 0; g < groups; ++g) sum = add4(sum, sum_group(a, p, column, row, g, lane));
      put_outputs(p, column, row, sum, lane);
    }
    return;
  }
  for (int c = 0; c < n_complete; ++c) {
    const int column = complete[c];
    const int groups = (count_parts(p, column) + 7) / 8;
    for (int task = warp; task < groups * a.n_rows; task += kWarps)
      reinterpret_cast<float4*>(sums + task * 128)[lane] = sum_group(a, p, column, task / groups, task % groups, lane);
    __syncthreads();
    for (int row = warp; row < a.n_rows; row += kWarps) {
      float4 sum = make_float4(0, 0, 0, 0);
      for (int g = 0; g < groups; ++g) sum = add4(sum, reinterpret_cast<const float4*>(sums + (row * groups + g) * 128)[lane]);
      put_outputs(p, column, row, sum, lane);
    }
    __syncthreads();
  }
}

template <int NB>
__global__ void __launch_bounds__(kThreads, 1) gemv_kernel(const __grid_constant__ Launch a) {
  extern __shared__ __align__(128) uint32_t shared[];
  __shared__ int complete[kMaxComplete];
  __shared__ int n_complete;
  STAMP(0);
  int which = 0;
  while (which + 1 < a.n_problems && static_cast<int>(blockIdx.x) >= a.problem[which + 1].first) ++which;
  const Problem& p = a.problem[which];
  const int index = static_cast<int>(blockIdx.x) - p.first;
  const Range r = range_of(p, index);
  const int n_image = ((r.end - 1) / p.depth / p.cb - r.first_chunk + 1) * p.depth;
  RowScale* scale = reinterpret_cast<RowScale*>(shared + n_image * NB * kImageWords);
  switch (p.bits) {
    case 1: stream<1, NB>(a, p, r, index, shared, scale, n_image); break;
    case 2: stream<2, NB>(a, p, r, index, shared, scale, n_image); break;
    case 3: stream<3, NB>(a, p, r, index, shared, scale, n_image); break;
    case 4: stream<4, NB>(a, p, r, index, shared, scale, n_image); break;
    case 5: stream<5, NB>(a, p, r, index, shared, scale, n_image); break;
    case 6: stream<6, NB>(a, p, r, index, shared, scale, n_image); break;
    case 7: stream<7, NB>(a, p, r, index, shared, scale, n_image); break;
    default: stream<8, NB>(a, p, r, index, shared, scale, n_image); break;
  }
  STAMP(2);
  count_in(p, r, complete, &n_complete);
  STAMP(3);
  finish(a, p, complete, n_complete, reinterpret_cast<float*>(shared));
  STAMP(4);
}

// One thread block per 128 x 128 block: word i of lane l's quarter (u, t) is word gK + i of tile (4u + q, 2w + t).
__global__ void repack_kernel(const uint32_t* trellis, uint4* lanes, int kb, int bits, int64_t row_words) {
  const int k_block = static_cast<int>(blockIdx.x) % kb, column = static_cast<int>(blockIdx.x) / kb;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint4* to = lanes + static_cast<int64_t>(blockIdx.x) * kTeamWarps * bits * 32 + warp * bits * 32 + lane;
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

// The layout of one launch: who gets which thread blocks, and how much shared memory the largest image takes.
struct Cut {
  Problem problem[kExl3GemvMatrices];
  int n_blocks = 0, n_image = 0;
  size_t workspace_floats = 0;
};

Cut cut(std::span<const Exl3GemvArgs::Output> outputs, int n_rows, int n_sms) {
  Cut c{};
  int total = 0;
  for (const auto& o : outputs) total += o.w.in / 128 * (o.w.out / 128);
  for (size_t i = 0; i < outputs.size(); ++i) {
    Problem& p = c.problem[i];
    p.kb = outputs[i].w.in / 128, p.cb = outputs[i].w.out / 128;
    p.depth = chunk_depth(p.kb), p.runs = p.kb / p.depth * p.cb;
    const int blocks = p.kb * p.cb, n_teams = teams(blocks, share(blocks, total, n_sms));
    p.blocks = static_cast<uint32_t>(blocks), p.teams = static_cast<uint32_t>(n_teams);
    p.first = c.n_blocks;
    c.n_blocks += (n_teams + kTeams - 1) / kTeams;
    const int length = (blocks + n_teams - 1) / n_teams * kTeams;
    c.n_image = std::max(c.n_image, std::min(p.kb / p.depth, (length - 1) / (p.cb * p.depth) + 2) * p.depth);
    c.workspace_floats += static_cast<size_t>(p.runs + n_teams) * static_cast<size_t>(n_rows) * 128;
  }
  return c;
}

template <int NB>
Result<void> launch(const gpu::Stream& s, const Launch& a, const Cut& c, size_t smem_per_block) {
  const size_t bytes = static_cast<size_t>(std::max(image_bytes<NB>(c.n_image), kFinishBytes));
  if (bytes > smem_per_block) return fail(Code::kBug, "exl3_gemv", "activation image larger than shared memory");
  for (int i = 0; i < a.n_problems; ++i)
    if (uint64_t{a.problem[i].blocks} * (a.problem[i].teams + 1) >> 32 != 0) return fail(Code::kBug, "exl3_gemv", "matrix too large");
  DSF_CUDA_TRY(cudaFuncSetAttribute(gemv_kernel<NB>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_per_block) - 4096));
  gemv_kernel<NB><<<static_cast<unsigned>(c.n_blocks), kThreads, bytes, gpu::cuda_stream(s)>>>(a);
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

size_t exl3_gemv_workspace_bytes(std::span<const Exl3GemvArgs::Output> outputs, int n_rows, int n_sms) {
  return exl3::cut(outputs, std::min(n_rows, 8), n_sms).workspace_floats * sizeof(float);
}

Result<void> exl3_gemv(const gpu::Stream& s, const gpu::Facts& device, const Exl3GemvArgs& a) {
  using namespace exl3;
  DSF_OK(check(a));
  for (int row = 0; row < a.n_rows; row += 8) {
    Launch l{};
    l.n_rows = std::min(a.n_rows - row, 8);
    l.x = a.x + static_cast<int64_t>(row) * a.x_stride;
    l.x_stride = a.x_stride;
    l.n_problems = static_cast<int>(a.outputs.size());
    const Cut c = cut(a.outputs, l.n_rows, device.n_sms);
    float* z = static_cast<float*>(a.workspace);
    uint32_t* counters = a.counters;
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      const auto& o = a.outputs[i];
      Problem p = c.problem[i];
      p.lanes = static_cast<const uint4*>(o.w.lanes);
      p.suh = reinterpret_cast<const __half*>(o.w.suh), p.svh = reinterpret_cast<const __half*>(o.w.svh);
      p.y = o.y + static_cast<int64_t>(row) * o.y_stride, p.y_stride = o.y_stride;
      p.bits = o.w.bits, p.z = z, p.counters = counters;
      z += (p.runs + static_cast<int64_t>(p.teams)) * l.n_rows * 128;
      counters += p.cb;
      l.problem[i] = p;
    }
    DSF_OK(l.n_rows <= 4 ? launch<1>(s, l, c, device.smem_per_block) : launch<2>(s, l, c, device.smem_per_block));
  }
  return {};
}

Result<void> exl3_repack(const gpu::Stream& s, const void* trellis, void* lanes, int in, int out, int bits, int64_t row_words) {
  if (in <= 0 || out <= 0 || in % 128 != 0 || out % 128 != 0 || bits < 1 || bits > 8) return fail(Code::kBug, "exl3_repack", "matrix shape");
  const unsigned blocks = static_cast<unsigned>(in / 128) * static_cast<unsigned>(out / 128);
  exl3::repack_kernel<<<blocks, exl3::kTeam, 0, gpu::cuda_stream(s)>>>(static_cast<const uint32_t*>(trellis), static_cast<uint4*>(lanes), in / 128, bits,
                                                                       row_words);
  DSF_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace dsf::serve::ops

#ifdef TRACE
extern "C" void exl3_trace(int n) {
  static long long t[1024][6];
  cudaDeviceSynchronize();
  cudaMemcpyFromSymbol(t, dsf::serve::ops::exl3::g_trace, sizeof t);
  long long t0 = t[0][0];
  for (int i = 0; i < n; ++i) t0 = t[i][0] < t0 ? t[i][0] : t0;
  double sum[5] = {}, mx[5] = {};
  for (int i = 0; i < n; ++i) for (int j = 0; j < 5; ++j) { double v = double(t[i][j] - t0) / 1e3; sum[j] += v / n; if (v > mx[j]) mx[j] = v; }
  printf("   trace mean/max us: start %.2f/%.2f image %.2f/%.2f main %.2f/%.2f counted %.2f/%.2f end %.2f/%.2f\n", sum[0], mx[0], sum[1], mx[1], sum[2], mx[2], sum[3], mx[3], sum[4], mx[4]);
}
#endif
