// Three steps. survey: kParts blocks per row find the largest logit, its lowest id, and whether all are finite. weigh:
// kParts blocks per row add up the mass at the row's temperature and, where no filter but min_p is on, find their
// part's winner of the draw. finish: one block per row; with a filter it sorts the kCandidates best (select_rows has
// listed them), walks the mass until top_p, and draws among the rest. Sums have a fixed order. Limit: launch at few
// rows; float64 exponentials and logarithms (two a logit).
#include "tools/serve/backends/cuda/launch_choice.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {
namespace {

constexpr int kThreads = 256;  // of survey and weigh
constexpr int kParts = 32;     // blocks per row there
constexpr int kFinish = 1024;  // threads of finish: one candidate each
static_assert(kFinish == kCandidates);

struct Part {
  double mass, score;  // of the draw's winner here
  float top, logit;
  int32_t top_id, id;  // -1: none
  int32_t bad;
};

__device__ uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

__device__ double gumbel(const TokenChoice& c, int64_t id) {
  const uint64_t key = mix(mix(c.seed + 0x9E3779B97F4A7C15u) ^ (c.position * 0xD1B54A32D192ED03u));
  const double u = static_cast<double>(mix(key ^ static_cast<uint64_t>(id)) >> 11) * 0x1p-53 + 0x1p-54;
  return -log(-log(u < 1.0 ? u : 1.0 - 0x1p-53));
}

__device__ bool keeps_all(const TokenChoice& c) { return c.top_p >= 1 && c.top_k <= 0; }

// A candidate of the draw, and which of two comes first: the better score, then the larger logit, then the lower id.
struct Drawn {
  double score;
  float logit;
  int32_t id;
};
__device__ Drawn better(const Drawn& a, const Drawn& b) {
  if (a.id < 0 || b.id < 0) return a.id < 0 ? b : a;
  if (a.score != b.score) return a.score > b.score ? a : b;
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.id < b.id ? a : b;
}
__device__ Drawn warp_better(Drawn d) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    d = better(d, {__shfl_xor_sync(0xffffffffu, d.score, mask), __shfl_xor_sync(0xffffffffu, d.logit, mask),
                   __shfl_xor_sync(0xffffffffu, d.id, mask)});
  }
  return d;
}
// Of the block; thread 0 gets it.
template <int Threads>
__device__ Drawn block_better(Drawn d, Drawn* scratch) {
  d = warp_better(d);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = d;
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  Drawn all = lane < Threads / kWarp ? scratch[lane] : Drawn{0, 0, -1};
  all = warp_better(all);
  __syncthreads();
  return all;
}

__device__ Drawn draw_of(const TokenChoice& c, float logit, int64_t id, double top) {
  const double temperature = fmax(c.temperature, 1e-6), x = static_cast<double>(logit) / temperature;
  const bool kept = logit != kNever && (c.min_p <= 0 || x >= top / temperature + log(c.min_p));
  return {kept ? x + gumbel(c, id) : 0, logit, kept ? static_cast<int32_t>(id) : -1};
}

__global__ void __launch_bounds__(kThreads) survey_kernel(ChooseTokenArgs a, Part* parts, int64_t* visible) {
  __shared__ Drawn scratch[kThreads / kWarp];
  const int64_t row = blockIdx.y;
  const float* logits = a.logits + row * a.vocab;
  Drawn best{0, 0, -1};
  int bad = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.vocab; i += kParts * kThreads) {
    const float x = logits[i];
    if (isnan(x) || x == -kNever)
      bad = 1;
    else if (x != kNever)
      best = better(best, {0, x, static_cast<int32_t>(i)});
  }
  bad = __syncthreads_or(bad);
  best = block_better<kThreads>(best, scratch);
  if (threadIdx.x != 0) return;
  parts[row * kParts + blockIdx.x] = {0, 0, best.logit, 0, best.id, -1, bad};
  if (blockIdx.x == 0) visible[row] = a.vocab;
}

// The row's largest logit and its lowest id; id -1 when the row is not finite or empty.
__device__ Drawn top_of(const Part* parts) {
  Drawn best{0, 0, -1};
  for (int p = 0; p < kParts; ++p) {
    if (parts[p].bad != 0) return {0, 0, -1};
    best = better(best, {0, parts[p].top, parts[p].top_id});
  }
  return best;
}

__global__ void __launch_bounds__(kThreads) weigh_kernel(ChooseTokenArgs a, Part* parts) {
  __shared__ Drawn scratch[kThreads / kWarp];
  __shared__ double masses[kThreads];
  const int64_t row = blockIdx.y;
  const TokenChoice c = a.choices[row];
  const Drawn top = top_of(parts + row * kParts);
  if (c.temperature == 0 || top.id < 0) return;
  const float* logits = a.logits + row * a.vocab;
  const double temperature = fmax(c.temperature, 1e-6);
  double mass = 0;
  Drawn best{0, 0, -1};
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.vocab; i += kParts * kThreads) {
    if (keeps_all(c))
      best = better(best, draw_of(c, logits[i], i, top.logit));
    else
      mass += exp((static_cast<double>(logits[i]) - static_cast<double>(top.logit)) / temperature);
  }
  masses[threadIdx.x] = mass;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) masses[threadIdx.x] += masses[threadIdx.x + half];
    __syncthreads();
  }
  best = block_better<kThreads>(best, scratch);
  if (threadIdx.x == 0) {
    Part& p = parts[row * kParts + blockIdx.x];
    p.mass = masses[0], p.score = best.score, p.logit = best.logit, p.id = best.id;
  }
}

// Sorts by (logit descending, id ascending): larger keys first.
__device__ void sort_descending(uint64_t* keys) {
  for (int size = 2; size <= kFinish; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      const int i = threadIdx.x, j = i ^ step;
      if (j > i && (keys[i] < keys[j]) == ((i & size) == 0)) {
        const uint64_t k = keys[i];
        keys[i] = keys[j], keys[j] = k;
      }
    }
  }
  __syncthreads();
}

// How many of the sorted candidates the filters keep, or kUndecided. One thread: the oracle adds in this order too.
__device__ int64_t kept_by_filters(const TokenChoice& c, const double* weights, int64_t n, int64_t vocab,
                                   const Part* parts) {
  const int64_t k = c.top_k > 0 && c.top_k < vocab ? c.top_k : vocab;
  if (c.top_p >= 1) return k <= n ? k : kUndecided;
  double total = 0;
  if (k == vocab) {
    for (int p = 0; p < kParts; ++p) total += parts[p].mass;
  } else if (k > n) {
    return kUndecided;
  } else {
    for (int64_t i = 0; i < k; ++i) total += weights[i];
  }
  double cumulative = 0;
  for (int64_t i = 0; i < k && i < n; ++i) {
    cumulative += weights[i] / total;
    if (cumulative >= c.top_p) return i + 1;
  }
  return k <= n || n < kFinish ? n : kUndecided;
}

__global__ void __launch_bounds__(kFinish)
    finish_kernel(ChooseTokenArgs a, const Part* parts, const int32_t* candidates) {
  __shared__ uint64_t keys[kFinish];
  __shared__ double weights[kFinish];
  __shared__ Drawn scratch[kFinish / kWarp];
  __shared__ int64_t kept;
  const int64_t row = blockIdx.x;
  const TokenChoice c = a.choices[row];
  parts += row * kParts;
  const Drawn top = top_of(parts);
  if (top.id < 0 || c.temperature == 0) {
    if (threadIdx.x == 0) a.ids[row] = top.id < 0 ? kNotFinite : top.id;
    return;
  }
  if (keeps_all(c)) {
    Drawn d{0, 0, -1};
    if (threadIdx.x < kParts) d = {parts[threadIdx.x].score, parts[threadIdx.x].logit, parts[threadIdx.x].id};
    d = block_better<kFinish>(d, scratch);
    if (threadIdx.x == 0) a.ids[row] = d.id;
    return;
  }
  const float* logits = a.logits + row * a.vocab;
  const int32_t id = candidates[row * kCandidates + threadIdx.x];
  // -0 counts as +0. A place without a candidate sorts last, and so does -infinity, which is none.
  const uint32_t u = id >= 0 ? __float_as_uint(logits[id] + 0.0f) : 0;
  const uint32_t ordered = (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
  const bool there = id >= 0 && logits[id] != kNever;
  keys[threadIdx.x] = there ? uint64_t{ordered} << 32 | (0xffffffffu - static_cast<uint32_t>(id)) : 0;
  const int64_t n = __syncthreads_count(there);
  sort_descending(keys);
  const bool mine = threadIdx.x < n;
  const auto sorted_id = static_cast<int64_t>(0xffffffffu - static_cast<uint32_t>(keys[threadIdx.x]));
  const float logit = mine ? logits[sorted_id] : kNever;
  weights[threadIdx.x] =
      mine ? exp((static_cast<double>(logit) - static_cast<double>(top.logit)) / fmax(c.temperature, 1e-6)) : 0.0;
  __syncthreads();
  if (threadIdx.x == 0) kept = kept_by_filters(c, weights, n, a.vocab, parts);
  __syncthreads();
  Drawn d{0, 0, -1};
  if (mine && threadIdx.x < kept) d = draw_of(c, logit, sorted_id, top.logit);
  d = block_better<kFinish>(d, scratch);
  if (threadIdx.x == 0) a.ids[row] = kept == kUndecided ? kUndecided : d.id;
}

struct Workspace {
  Part* parts;
  int64_t* visible;
  int32_t* candidates;
  float* select;
  int64_t floats;
};
Workspace carve(float* base, int64_t n_rows, int64_t vocab) {
  Workspace w{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    auto* p = base + at;
    at += (bytes + 255) / 256 * 64;
    return p;
  };
  w.parts = reinterpret_cast<Part*>(take(n_rows * kParts * static_cast<int64_t>(sizeof(Part))));
  w.visible = reinterpret_cast<int64_t*>(take(n_rows * 8));
  w.candidates = reinterpret_cast<int32_t*>(take(n_rows * kCandidates * 4));
  w.select = take(select_workspace(n_rows, vocab, kCandidates) * 4);
  w.floats = at;
  return w;
}

}  // namespace

int64_t choose_token_workspace(int64_t n_rows, int64_t vocab) { return carve(nullptr, n_rows, vocab).floats; }

Result<void> choose_token_cuda(const ChooseTokenArgs& a, bool filtered, float* workspace, CudaStream stream) {
  if (a.n_rows == 0) return {};
  const Workspace w = carve(workspace, a.n_rows, a.vocab);
  const auto rows = static_cast<unsigned>(a.n_rows);
  survey_kernel<<<dim3(kParts, rows), kThreads, 0, stream>>>(a, w.parts, w.visible);
  DSF_OK(launched("choose_token"));
  weigh_kernel<<<dim3(kParts, rows), kThreads, 0, stream>>>(a, w.parts);
  DSF_OK(launched("choose_token"));
  if (filtered) {
    DSF_OK(select_rows_cuda({.score = a.logits,
                             .visible = w.visible,
                             .selection = w.candidates,
                             .n_rows = a.n_rows,
                             .n_keys = a.vocab,
                             .k = kCandidates},
                            w.select, stream));
  }
  finish_kernel<<<rows, kFinish, 0, stream>>>(a, w.parts, w.candidates);
  return launched("choose_token");
}

}  // namespace dsf::serve::ops
