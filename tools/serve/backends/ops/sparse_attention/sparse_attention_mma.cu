// Split attention on tensor cores over rows that are exact in bf16. Grid (splits, groups of 16 heads, rows): a block
// brings the kSplit list entries of its split as bf16 into shared memory [kSplit, dim]. For the scores a warp
// multiplies a quarter of the dimensions with half of the entries, and the four shares of every score are added in
// order; for the output it makes an eighth of the columns. f32 operands enter as three bf16 terms, whose products with
// bf16 rows are exact and are added in f32. Splits lie at fixed places of the list, so a row depends on its own list
// only; the shares are joined by sparse_attention.cu's rule. Shared memory at width 512: 65 KB of rows, 17 KB of
// scores. Limit: latency at few rows, then tensor cores: 3 * 2 * 16 * kSplit * dim products a block.
#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/common/device.cuh"
#include "tools/serve/backends/ops/common/launch.cuh"
#include "tools/serve/backends/ops/common/mma.cuh"
#include "tools/serve/backends/ops/sparse_attention/split.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kHeads = 16;  // the MMA's rows
constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kQuarters = 4;              // of the dimensions, for the scores
constexpr int kHalf = kSplit / 2;         // of the entries, likewise
constexpr int kScoreStride = kSplit + 4;  // floats; spreads rows over the banks
constexpr int kTerms = 3;

// Of the shared tile: 16 bytes more per row, so that eight rows start on different banks.
__host__ __device__ constexpr int tile_stride(int dim) { return 2 * dim + 16; }
constexpr size_t shared_bytes(int dim) {
  return static_cast<size_t>(kSplit * tile_stride(dim)) + kQuarters * kHeads * kScoreStride * sizeof(float);
}

__device__ uint32_t pack_exact(float low, float high) {
  return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
}

// v as a sum of bf16 values, each the leading bits of what is left: pairs of them for the MMA.
__device__ void split_terms(float low, float high, uint32_t (&terms)[kTerms]) {
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    terms[i] = pack_exact(low, high);
    low -= __uint_as_float(terms[i] << 16);
    high -= __uint_as_float(terms[i] & 0xffff0000u);
  }
}

__device__ float e4m3(uint32_t code) { return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 0x1p120f; }
__device__ float e2m1(uint32_t code) { return __uint_as_float((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f; }

// Eight values of an entry, from dimension d on, as bf16.
__device__ uint4 eight_of_f32(const float* row, int d) {
  const float4 a = __ldg(reinterpret_cast<const float4*>(row + d)),
               b = __ldg(reinterpret_cast<const float4*>(row + d + 4));
  return make_uint4(pack_exact(a.x, a.y), pack_exact(a.z, a.w), pack_exact(b.x, b.y), pack_exact(b.z, b.w));
}
__device__ uint4 eight_of_window(const uint8_t* row, int dim, int d) {
  const uint2 v = __ldg(reinterpret_cast<const uint2*>(row + d));
  const float scale = __uint_as_float(uint32_t{__ldg(row + dim + d / 32)} << 23);
  const auto pair = [&](uint32_t codes) {
    return pack_exact(e4m3(codes & 0xffu) * scale, e4m3(codes >> 8 & 0xffu) * scale);
  };
  return make_uint4(pair(v.x), pair(v.x >> 16), pair(v.y), pair(v.y >> 16));
}
__device__ uint4 eight_of_compressed(const uint8_t* row, int dim, int d) {
  const uint32_t v = __ldg(reinterpret_cast<const uint32_t*>(row + d / 2));
  const float scale = e4m3(__ldg(row + dim / 2 + d / 16));
  const auto pair = [&](uint32_t codes) {
    return pack_exact(e2m1(codes & 15u) * scale, e2m1(codes >> 4 & 15u) * scale);
  };
  return make_uint4(pair(v), pair(v >> 8), pair(v >> 16), pair(v >> 24));
}

// Where the list's entry lies: which store, and which row of it; -1: there is none.
struct Entry {
  bool in_window;
  int64_t row;
};
__device__ Entry entry_at(const SparseAttentionArgs& a, int64_t row, int64_t place, int64_t max_window) {
  if (place < max_window) {
    const int64_t position = a.window_begin[row] + place, first = a.window_offset != nullptr ? a.window_offset[row] : 0;
    return {true, position < a.window_end[row] ? first + position % a.ring_rows : -1};
  }
  place -= max_window;
  const int64_t g = place < a.n_selected ? a.selection[row * a.n_selected + place] : -1,
                first = a.rows_offset != nullptr ? a.rows_offset[row] : 0;
  return {false, g >= 0 ? first + g : -1};
}

template <int Dim>
constexpr int64_t kWindowBytes = packed_row_bytes(FakeQuant::kWindow, Dim);
template <int Dim>
constexpr int64_t kCompressedBytes = packed_row_bytes(FakeQuant::kCompressed, Dim);

template <int Dim>
__device__ uint4 eight_at(const SparseAttentionArgs& a, const PackedCaches& packed, const Entry& e, int d) {
  if (e.row < 0) return make_uint4(0, 0, 0, 0);
  if (e.in_window) {
    return packed.window != nullptr ? eight_of_window(packed.window + e.row * kWindowBytes<Dim>, Dim, d)
                                    : eight_of_f32(a.window + e.row * Dim, d);
  }
  return packed.rows != nullptr ? eight_of_compressed(packed.rows + e.row * kCompressedBytes<Dim>, Dim, d)
                                : eight_of_f32(a.rows + e.row * Dim, d);
}

// The query of a warp's quarter: of heads g and g + 8 the pairs that the MMA's A wants, loaded while the rows are on
// their way. Zeros past the last head.
template <int Dim>
struct Query {
  float2 v[Dim / kQuarters / 16][4];
};
template <int Dim>
__device__ Query<Dim> load_query(const SparseAttentionArgs& a, int64_t row, int64_t head0, int quarter) {
  Query<Dim> q;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int step = 0; step < Dim / kQuarters / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t head = head0 + g + 8 * (i % 2);
      const int d = quarter * (Dim / kQuarters) + 16 * step + 2 * t + 8 * (i / 2);
      q.v[step][i] = head < a.n_heads ? __ldg(reinterpret_cast<const float2*>(a.q + (row * a.n_heads + head) * Dim + d))
                                      : make_float2(0, 0);
    }
  }
  return q;
}

// A warp's share of the scores: its quarter of the dimensions, its half of the entries. Written to shares [quarter,
// head, entry].
template <int Dim>
__device__ void score_share(const Query<Dim>& q, const uint8_t* tile, int quarter, int half, float* shares) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  float s[kHalf / 8][4] = {};
#pragma unroll
  for (int step = 0; step < Dim / kQuarters / 16; ++step) {
    uint32_t terms[kTerms][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t one[kTerms];
      split_terms(q.v[step][i].x, q.v[step][i].y, one);
#pragma unroll
      for (int k = 0; k < kTerms; ++k) terms[k][i] = one[k];
    }
#pragma unroll
    for (int n = 0; n < kHalf / 8; ++n) {
      const int d = quarter * (Dim / kQuarters) + 16 * step;
      const auto* key =
          reinterpret_cast<const uint32_t*>(tile + (half * kHalf + 8 * n + g) * tile_stride(Dim) + 2 * d) + t;
#pragma unroll
      for (int k = 0; k < kTerms; ++k) mma_bf16(s[n], terms[k], key[0], key[4]);
    }
  }
  float* const mine = shares + quarter * kHeads * kScoreStride + half * kHalf;
#pragma unroll
  for (int n = 0; n < kHalf / 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<float2*>(mine + (g + 8 * h) * kScoreStride + 8 * n + 2 * t) =
          make_float2(s[n][2 * h], s[n][2 * h + 1]);
  }
}

// The whole scores of this lane's places of the list, from the four shares: s becomes the exponentials, top and sum
// those of rows g and g + 8.
__device__ void soften(const SparseAttentionArgs& a, const float* shares, const Entry* entries,
                       float (&s)[kSplit / 8][4], float (&top)[2], float (&sum)[2]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  top[0] = top[1] = kNever;
#pragma unroll
  for (int n = 0; n < kSplit / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * n + 2 * t + i % 2;
      const float* share = shares + (g + 8 * (i / 2)) * kScoreStride + column;
      constexpr int kStep = kHeads * kScoreStride;
      const float whole = (share[0] + share[kStep]) + (share[2 * kStep] + share[3 * kStep]);
      s[n][i] = entries[column].row >= 0 ? whole * a.scale : kNever;
      top[i / 2] = fmaxf(top[i / 2], s[n][i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
    sum[h] = 0;
  }
#pragma unroll
  for (int n = 0; n < kSplit / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] = s[n][i] == kNever ? 0.0f : expf(s[n][i] - top[i / 2]);
      sum[i / 2] += s[n][i];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
  }
}

// This warp's eighth of the output: probabilities [16, kSplit] times the tile's columns, kColumns tiles of eight.
template <int Dim>
__device__ void output_share(const uint8_t* tile, int warp, const float (&p)[kSplit / 8][4], const Partials& out,
                             const SparseAttentionArgs& a, int64_t row, int64_t head0) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  constexpr int kEighth = Dim / kWarps, kColumns = kEighth / 8;
  float o[kColumns][4] = {};
#pragma unroll
  for (int k0 = 0; k0 < kSplit; k0 += 16) {
    uint32_t probability[kTerms][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // row g or g + 8, columns 2t or 8 + 2t of the sixteen
      const float* pair = &p[k0 / 8 + i / 2][2 * (i % 2)];
      uint32_t terms[kTerms];
      split_terms(pair[0], pair[1], terms);
#pragma unroll
      for (int k = 0; k < kTerms; ++k) probability[k][i] = terms[k];
    }
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      uint32_t v[4];  // entries k0.. and k0 + 8.. of columns c, then of c + 1
      load_tiles_transposed(v, tile + (k0 + lane % 16) * tile_stride(Dim) + 2 * (warp * kEighth + 8 * (c + lane / 16)));
#pragma unroll
      for (int k = 0; k < kTerms; ++k) {
        mma_bf16(o[c], probability[k], v[0], v[1]);
        mma_bf16(o[c + 1], probability[k], v[2], v[3]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (head0 + g + 8 * h >= a.n_heads) continue;
    float* to = out.at(a, row, head0 + g + 8 * h, blockIdx.x, gridDim.x) + 2 + warp * kEighth + 2 * t;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      *reinterpret_cast<float2*>(to + 8 * c) = make_float2(o[c][2 * h], o[c][2 * h + 1]);
  }
}

// Brings the split's entries into the tile, kAtOnce pieces of eight values in flight per thread.
template <int Dim>
__device__ void load_tile(const SparseAttentionArgs& a, const PackedCaches& packed, const Entry* entries,
                          uint8_t* tile) {
  constexpr int kChunks = Dim / 8, kAtOnce = 8;
  for (int first = threadIdx.x; first < kSplit * kChunks; first += kAtOnce * kThreads) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kThreads;
      if (i < kSplit * kChunks) v[n] = eight_at<Dim>(a, packed, entries[i / kChunks], i % kChunks * 8);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kThreads;
      if (i < kSplit * kChunks)
        *reinterpret_cast<uint4*>(tile + i / kChunks * tile_stride(Dim) + i % kChunks * 16) = v[n];
    }
  }
}

template <int Dim>
__global__ void __launch_bounds__(kThreads, 2)
    split_mma_kernel(SparseAttentionArgs a, PackedCaches packed, int64_t max_window, Partials partials) {
  extern __shared__ uint8_t tile[];
  __shared__ Entry entries[kSplit];
  float* const shares = reinterpret_cast<float*>(tile + kSplit * tile_stride(Dim));
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int64_t row = blockIdx.z, head0 = int64_t{blockIdx.y} * kHeads;

  start_after_previous();
  int any = 0;
  if (threadIdx.x < kSplit) {
    entries[threadIdx.x] = entry_at(a, row, int64_t{blockIdx.x} * kSplit + threadIdx.x, max_window);
    any = entries[threadIdx.x].row >= 0 ? 1 : 0;
  }
  if (__syncthreads_or(any) == 0) {  // nothing of the list here: the join leaves it out
    if (warp == 0 && lane < kHeads && head0 + lane < a.n_heads) {
      float* to = partials.at(a, row, head0 + lane, blockIdx.x, gridDim.x);
      to[0] = kNever, to[1] = 0;
    }
    return;
  }
  const Query<Dim> q = load_query<Dim>(a, row, head0, warp % kQuarters);
  load_tile<Dim>(a, packed, entries, tile);
  __syncthreads();
  score_share<Dim>(q, tile, warp % kQuarters, warp / kQuarters, shares);
  __syncthreads();
  float s[kSplit / 8][4], top[2], sum[2];
  soften(a, shares, entries, s, top, sum);
  if (warp == 0 && t == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (head0 + g + 8 * h >= a.n_heads) continue;
      float* to = partials.at(a, row, head0 + g + 8 * h, blockIdx.x, gridDim.x);
      to[0] = top[h], to[1] = sum[h];
    }
  }
  output_share<Dim>(tile, warp, s, partials, a, row, head0);
}

template <int Dim>
Result<void> launch_split(const SparseAttentionArgs& a, const PackedCaches& packed, int64_t max_window,
                          const Partials& partials, int64_t n_splits, CudaStream stream) {
  constexpr size_t kBytes = shared_bytes(Dim);
  if (kBytes > 48 * 1024 && cudaFuncSetAttribute(split_mma_kernel<Dim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(kBytes)) != cudaSuccess)
    return launched("sparse_attention");
  const dim3 grid(static_cast<unsigned>(n_splits), grid_of(a.n_heads, kHeads), static_cast<unsigned>(a.n_rows));
  return launch_after(split_mma_kernel<Dim>, stream, grid, kThreads, kBytes, a, packed, max_window, partials);
}

}  // namespace

bool sparse_attention_mma_fits(int64_t head_dim) { return head_dim == 128 || head_dim == 256 || head_dim == 512; }

Result<void> sparse_attention_mma_cuda(const SparseAttentionArgs& a, const PackedCaches& packed, int64_t max_window,
                                       float* partial, CudaStream stream, const OutputRotation& rotation) {
  if (a.n_rows == 0) return {};
  const int64_t n_splits = splits_of(max_window, a.n_selected);
  const Partials partials{partial, a.head_dim};
  switch (a.head_dim) {
    case 128:
      DSF_OK(launch_split<128>(a, packed, max_window, partials, n_splits, stream));
      break;
    case 256:
      DSF_OK(launch_split<256>(a, packed, max_window, partials, n_splits, stream));
      break;
    case 512:
      DSF_OK(launch_split<512>(a, packed, max_window, partials, n_splits, stream));
      break;
    default:
      return fail(Code::kUsage, "sparse_attention", "no instance for head_dim " + std::to_string(a.head_dim));
  }
  return join_splits(a, partials, n_splits, rotation, stream);
}

}  // namespace dsf::serve::ops
