// Split attention on tensor cores over rows that are exact in bf16. Grid (splits, groups of 16 heads, rows): a block
// brings the kSplit list entries of its split as bf16 into shared memory [kSplit, dim]. For the scores a warp
// multiplies a quarter of the dimensions with half of the entries, and the four shares of every score are added in
// order; then it makes the probabilities of two heads, and of the output an eighth of the columns. f32 operands enter as
// three bf16 terms, whose products with bf16 rows are exact and are added in f32. Splits lie at fixed places of the list,
// so a row depends on its own list only; the shares are joined by sparse_attention.cu's rule. Shared memory at width 512:
// 65 KB of rows, 17 KB of scores, 7 KB of probabilities. Limit: latency at few rows, then issue slots (unpacking) and
// tensor cores: 3 * 2 * 16 * kSplit * dim products a block.
#include <cuda_bf16.h>

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
constexpr int kProbStride = 2 * kSplit + 16;  // bytes a head of one term of the probabilities
constexpr size_t kShareBytes = kQuarters * kHeads * kScoreStride * sizeof(float);
constexpr size_t shared_bytes(int dim) {
  return static_cast<size_t>(kSplit * tile_stride(dim)) + kShareBytes + kTerms * kHeads * kProbStride;
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

__device__ uint32_t times_bf16(uint32_t a, uint32_t b) {
  const __nv_bfloat162 v = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}

// Two e4m3 codes, one in each half of the word, as bf16: their bits in place are the value times 2^-120, subnormals too.
__device__ uint32_t e4m3_pair(uint32_t codes) {
  return times_bf16((codes << 4 & 0x07f007f0u) | (codes << 8 & 0x80008000u), 0x7b807b80u);
}

// Eight values of an entry as bf16; every product below is exact in it.
__device__ uint4 eight_of_f32(float4 a, float4 b) {
  return make_uint4(pack_exact(a.x, a.y), pack_exact(a.z, a.w), pack_exact(b.x, b.y), pack_exact(b.z, b.w));
}
// Codes e4m3, scale: the exponent byte of a power of two.
__device__ uint4 eight_of_window(uint2 codes, uint32_t scale) {
  scale *= 0x00800080u;
  const auto pair = [&](uint32_t from, uint32_t selector) { return times_bf16(e4m3_pair(permute(from, 0, selector)), scale); };
  return make_uint4(pair(codes.x, 0x4140), pair(codes.x, 0x4342), pair(codes.y, 0x4140), pair(codes.y, 0x4342));
}
// Codes e2m1, the lowest nibble first; scale: e4m3. Magnitudes 0 .5 1 1.5 2 3 4 6 come from a table of bf16 bytes.
__device__ uint4 eight_of_compressed(uint32_t codes, uint32_t scale) {
  scale = e4m3_pair(scale * 0x00010001u);
  const uint32_t low = codes & 0x7777u, high = codes >> 16 & 0x7777u;
  const auto pair = [&](uint32_t places, uint32_t selector, uint32_t first_sign, uint32_t second_sign) {
    const uint32_t lower = permute(0xc0800000u, 0xc0804000u, places), upper = permute(0x3f3f3f00u, 0x40404040u, places);
    return times_bf16(permute(lower, upper, selector) | (first_sign & 0x8000u) | (second_sign & 0x80000000u), scale);
  };
  return make_uint4(pair(low, 0x5140, codes << 12, codes << 24), pair(low, 0x7362, codes << 4, codes << 16),
                    pair(high, 0x5140, codes >> 4, codes << 8), pair(high, 0x7362, codes >> 12, codes));
}

template <int Dim>
constexpr int64_t kWindowBytes = packed_row_bytes(FakeQuant::kWindow, Dim);
template <int Dim>
constexpr int64_t kCompressedBytes = packed_row_bytes(FakeQuant::kCompressed, Dim);

// Where the list's entry lies; nullptr: there is none.
struct Entry {
  const uint8_t* row;
  bool in_window;
};
template <int Dim, bool Packed>
__device__ Entry entry_at(const SparseAttentionArgs& a, const PackedCaches& packed, int64_t row, int64_t place, int64_t max_window) {
  if (place < max_window) {
    const int64_t position = a.window_begin[row] + place, first = a.window_offset != nullptr ? a.window_offset[row] : 0;
    if (position >= a.window_end[row]) return {nullptr, true};
    const int64_t at = first + position % a.ring_rows;
    return {Packed ? packed.window + at * kWindowBytes<Dim> : reinterpret_cast<const uint8_t*>(a.window + at * Dim), true};
  }
  place -= max_window;
  const int64_t g = place < a.n_selected ? a.selection[row * a.n_selected + place] : -1,
                first = a.rows_offset != nullptr ? a.rows_offset[row] : 0;
  if (g < 0) return {nullptr, false};
  return {Packed ? packed.rows + (first + g) * kCompressedBytes<Dim> : reinterpret_cast<const uint8_t*>(a.rows + (first + g) * Dim), false};
}

// Eight values of an entry as they are stored, and as bf16.
template <bool Packed>
struct Eight {
  float4 a, b;
};
template <>
struct Eight<true> {
  uint2 codes;
  uint32_t scale;
};
template <int Dim>
__device__ void fetch(Eight<false>& to, const Entry& e, int d) {
  const float4* const from = reinterpret_cast<const float4*>(e.row) + d / 4;
  to.a = to.b = make_float4(0, 0, 0, 0);
  if (e.row != nullptr) to.a = __ldg(from), to.b = __ldg(from + 1);
}
template <int Dim>
__device__ void fetch(Eight<true>& to, const Entry& e, int d) {
  to.codes = make_uint2(0, 0), to.scale = 0;
  if (e.row == nullptr) return;
  if (e.in_window) to.codes = __ldg(reinterpret_cast<const uint2*>(e.row + d)), to.scale = __ldg(e.row + Dim + d / 32);
  else to.codes.x = __ldg(reinterpret_cast<const uint32_t*>(e.row + d / 2)), to.scale = __ldg(e.row + Dim / 2 + d / 16);
}
__device__ uint4 unpacked(const Eight<false>& from, bool) { return eight_of_f32(from.a, from.b); }
__device__ uint4 unpacked(const Eight<true>& from, bool in_window) {
  return in_window ? eight_of_window(from.codes, from.scale) : eight_of_compressed(from.codes.x, from.scale);
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
    uint32_t key[kHalf / 16][4];  // [n / 2]: of entries 8n + g and 8n + 8 + g the pairs at d + 2t and d + 8 + 2t
    const int d = quarter * (Dim / kQuarters) + 16 * step;
#pragma unroll
    for (int n = 0; n < kHalf / 8; n += 2)
      load_tiles(key[n / 2], tile + (half * kHalf + 8 * n + lane % 8 + lane / 16 * 8) * tile_stride(Dim) + 2 * (d + lane / 8 % 2 * 8));
#pragma unroll
    for (int k = 0; k < kTerms; ++k)  // other accumulators between two products for the same one
#pragma unroll
      for (int n = 0; n < kHalf / 8; ++n) mma_bf16(s[n], terms[k], key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
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

// The whole scores of heads 2 warp and 2 warp + 1, from the four shares: their maximum and the sum of their exponentials into the partial result, the
// exponentials as three bf16 terms into probs [term][head][entry]. A lane holds the entries 2 lane and 2 lane + 1.
__device__ void soften(const SparseAttentionArgs& a, const float* shares, const Entry* entries, uint8_t* probs, const Partials& partials, int64_t row, int64_t head0) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const bool first = entries[2 * lane].row != nullptr, second = entries[2 * lane + 1].row != nullptr;
  constexpr int kStep = kHeads * kScoreStride;
#pragma unroll
  for (int h = 2 * warp; h < 2 * warp + 2; ++h) {
    float2 share[kQuarters];
#pragma unroll
    for (int i = 0; i < kQuarters; ++i) share[i] = *reinterpret_cast<const float2*>(shares + i * kStep + h * kScoreStride + 2 * lane);
    const float x = first ? ((share[0].x + share[1].x) + (share[2].x + share[3].x)) * a.scale : kNever,
                y = second ? ((share[0].y + share[1].y) + (share[2].y + share[3].y)) * a.scale : kNever;
    const float top = warp_max(fmaxf(x, y)), p = first ? expf(x - top) : 0.0f, r = second ? expf(y - top) : 0.0f, sum = warp_sum(p + r);
    uint32_t terms[kTerms];
    split_terms(p, r, terms);
#pragma unroll
    for (int k = 0; k < kTerms; ++k) *reinterpret_cast<uint32_t*>(probs + (k * kHeads + h) * kProbStride + 4 * lane) = terms[k];
    if (lane == 0 && head0 + h < a.n_heads) *reinterpret_cast<float2*>(partials.at(a, row, head0 + h, blockIdx.x, gridDim.x)) = make_float2(top, sum);
  }
}

// This warp's eighth of the output: probabilities [16, kSplit] times the tile's columns, kColumns tiles of eight.
template <int Dim>
__device__ void output_share(const uint8_t* tile, int warp, const uint8_t* probs, const Partials& out,
                             const SparseAttentionArgs& a, int64_t row, int64_t head0) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  constexpr int kEighth = Dim / kWarps, kColumns = kEighth / 8;
  float o[kColumns][4] = {};
#pragma unroll
  for (int k0 = 0; k0 < kSplit; k0 += 16) {
    uint32_t probability[kTerms][4];
#pragma unroll
    for (int k = 0; k < kTerms; ++k) load_tiles(probability[k], probs + (k * kHeads + lane % 16) * kProbStride + 2 * (k0 + lane / 16 * 8));
    constexpr int kTogether = kColumns < 4 ? kColumns : 4;
#pragma unroll
    for (int c = 0; c < kColumns; c += kTogether) {
      uint32_t v[kTogether / 2][4];  // entries k0.. and k0 + 8.. of a column of eight, then of the next
#pragma unroll
      for (int i = 0; i < kTogether; i += 2)
        load_tiles_transposed(v[i / 2], tile + (k0 + lane % 16) * tile_stride(Dim) + 2 * (warp * kEighth + 8 * (c + i + lane / 16)));
#pragma unroll
      for (int k = 0; k < kTerms; ++k)
#pragma unroll
        for (int i = 0; i < kTogether; ++i) mma_bf16(o[c + i], probability[k], v[i / 2][i % 2 * 2], v[i / 2][i % 2 * 2 + 1]);
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
template <int Dim, bool Packed>
__device__ void load_tile(const Entry* entries, uint8_t* tile) {
  constexpr int kChunks = Dim / 8, kAtOnce = 8;
  static_assert(kSplit * kChunks % kThreads == 0);
#pragma unroll 1
  for (int first = threadIdx.x; first < kSplit * kChunks; first += kAtOnce * kThreads) {
    Eight<Packed> v[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kThreads;
      if (i < kSplit * kChunks) fetch<Dim>(v[n], entries[i / kChunks], i % kChunks * 8);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kThreads;
      if (i < kSplit * kChunks)
        *reinterpret_cast<uint4*>(tile + i / kChunks * tile_stride(Dim) + i % kChunks * 16) = unpacked(v[n], entries[i / kChunks].in_window);
    }
  }
}

template <int Dim, bool Packed>
__global__ void __launch_bounds__(kThreads, 2)
    split_mma_kernel(SparseAttentionArgs a, PackedCaches packed, int64_t max_window, Partials partials) {
  extern __shared__ __align__(16) uint8_t tile[];
  __shared__ Entry entries[kSplit];
  float* const shares = reinterpret_cast<float*>(tile + kSplit * tile_stride(Dim));
  uint8_t* const probs = reinterpret_cast<uint8_t*>(shares) + kShareBytes;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.z, head0 = int64_t{blockIdx.y} * kHeads;

  start_after_previous();
  int any = 0;
  if (threadIdx.x < kSplit) {
    entries[threadIdx.x] = entry_at<Dim, Packed>(a, packed, row, int64_t{blockIdx.x} * kSplit + threadIdx.x, max_window);
    any = entries[threadIdx.x].row != nullptr ? 1 : 0;
  }
  if (__syncthreads_or(any) == 0) {  // nothing of the list here: the join leaves it out
    if (warp == 0 && lane < kHeads && head0 + lane < a.n_heads) {
      float* to = partials.at(a, row, head0 + lane, blockIdx.x, gridDim.x);
      to[0] = kNever, to[1] = 0;
    }
    return;
  }
  const Query<Dim> q = load_query<Dim>(a, row, head0, warp % kQuarters);
  load_tile<Dim, Packed>(entries, tile);
  __syncthreads();
  score_share<Dim>(q, tile, warp % kQuarters, warp / kQuarters, shares);
  __syncthreads();
  soften(a, shares, entries, probs, partials, row, head0);
  __syncthreads();
  output_share<Dim>(tile, warp, probs, partials, a, row, head0);
}

template <int Dim>
Result<void> launch_split(const SparseAttentionArgs& a, const PackedCaches& packed, int64_t max_window,
                          const Partials& partials, int64_t n_splits, CudaStream stream) {
  constexpr size_t kBytes = shared_bytes(Dim);
  auto* const kernel = packed.window != nullptr ? split_mma_kernel<Dim, true> : split_mma_kernel<Dim, false>;
  if (kBytes > 48 * 1024) DSF_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  const dim3 grid(static_cast<unsigned>(n_splits), grid_of(a.n_heads, kHeads), static_cast<unsigned>(a.n_rows));
  return launch_after(kernel, stream, grid, kThreads, kBytes, a, packed, max_window, partials);
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
