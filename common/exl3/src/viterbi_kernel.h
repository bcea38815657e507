// The trellis search as one source for every instruction set: included by viterbi_*.cpp inside a namespace of its own.
// Everything here is static and uses no library template, so that no copy made with wider instructions can be linked
// into code for all machines.
//
// Symbols: K bits; B = 2^K branches; a node is the last 16-K bits seen, N = 2^(16-K) nodes. A transition is a 16-bit
// state
//   s = p << (16-K) | g << K | b     from node  p << (16-2K) | g     to node  g << K | b        p, b < B; g < G =
//   2^(16-2K)
// so the B nodes g << K | b share their B predecessors: cost'[g,b] = min over p of cost[p,g] + (value(s) - w)^2.
// The search keeps costs instead of back pointers: the minimum loop then has no index to carry. Rows between the kept
// ones are computed again on the walk back, for the few nodes it needs, so that the kept rows of a pair stay in the
// cache (at most 8.5 MB).

// Costs that one vector register holds. Wider than the machine's registers the compiler would fall back to single
// values.
#if defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef float Unaligned __attribute__((vector_size(4 * kLanes), aligned(4)));  // the same, in memory

constexpr int kTiles = 2;
constexpr int kTargets = 256;
constexpr float kUnreachable = 1e30f;

template <int K>
struct Trellis {
  static constexpr int kBranches = 1 << K;
  static constexpr int kNodes = 1 << (16 - K);
  static constexpr int kGroups = 1 << (16 - 2 * K);
  // A row of costs is kept by [p][g], so that a step reads kBranches streams. At a pitch of kGroups they would fall on
  // the same cache sets and evict each other wherever that is a multiple of 1 KiB.
  static constexpr int kPitch = K <= 4 ? kGroups + 16 : kGroups;
  static constexpr int kRowFloats = kBranches * kPitch;
  static int place(int node) { return (node >> (16 - 2 * K)) * kPitch + (node & (kGroups - 1)); }
  // Rows kept, one in kStride: the walk back repeats about 2^(K * kStride) evaluations per kept row.
  static constexpr int kStride = K == 1 ? 4 : K <= 3 ? 2 : 1;
  static constexpr int kKeptRows = kTargets / kStride + 1;
  static constexpr int kRows = kKeptRows + 2;
  // Steps before and after the boundary of the first pass: five memories of the trellis, after which survivors have
  // merged.
  static constexpr int kReach = 80 / K + 8;
};

// References, because passing vectors by value depends on the instruction set.
static inline const Unaligned& load(const float* p) { return *reinterpret_cast<const Unaligned*>(p); }
static inline void store(float* p, const Lanes& v) { *reinterpret_cast<Unaligned*>(p) = v; }

// Nodes of one group in the lanes; values: [group][chunk of 32 branches][p][branch].
template <int K>
static void step_wide(const float* values, const float* w, const float* const* from, float* const* to) {
  using T = Trellis<K>;
  constexpr int kChunk = T::kBranches < 32 ? T::kBranches : 32;
  constexpr int kVectors = kChunk / kLanes;
  const float *const from0 = from[0], *const from1 = from[1];
  for (int g = 0; g < T::kGroups; ++g) {
    for (int b = 0; b < T::kBranches; b += kChunk) {
      Lanes best[kTiles][kVectors];
      for (int i = 0; i < kTiles; ++i)
        for (int j = 0; j < kVectors; ++j) best[i][j] = Lanes{} + 2 * kUnreachable;
#pragma GCC unroll 4
      for (int p = 0; p < T::kBranches; ++p, values += kChunk) {
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) {
          const Lanes value = load(values + kLanes * j);
#pragma GCC unroll 2
          for (int i = 0; i < kTiles; ++i) {
            const Lanes error = value - w[i];
            const Lanes cost = error * error + (i == 0 ? from0 : from1)[p * T::kPitch + g];
            best[i][j] = cost < best[i][j] ? cost : best[i][j];
          }
        }
      }
      for (int i = 0; i < kTiles; ++i)
        for (int j = 0; j < kVectors; ++j) store(to[i] + T::place(g * T::kBranches + b + kLanes * j), best[i][j]);
    }
  }
}

static inline void interleave(const Lanes& a, const Lanes& b, Lanes& low, Lanes& high) {
#if defined(__AVX2__)
  low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// K = 1 and 2 have fewer branches than lanes: groups in the lanes; values: [group / 8][p][branch][group % 8].
template <int K>
static void step_narrow(const float* values, const float* w, const float* const* from, float* const* to) {
  using T = Trellis<K>;
  constexpr int kB = T::kBranches;
  for (int g = 0; g < T::kGroups; g += kLanes) {
    const float* block = values + g / 8 * 8 * kB * kB + g % 8;
    for (int i = 0; i < kTiles; ++i) {
      Lanes best[kB];
      for (int b = 0; b < kB; ++b) best[b] = Lanes{} + 2 * kUnreachable;
#pragma GCC unroll 4
      for (int p = 0; p < kB; ++p) {
        const Lanes before = load(from[i] + p * T::kPitch + g);
#pragma GCC unroll 4
        for (int b = 0; b < kB; ++b) {
          const Lanes error = load(block + 8 * (p * kB + b)) - w[i];
          const Lanes cost = error * error + before;
          best[b] = cost < best[b] ? cost : best[b];
        }
      }
      Lanes out[kB];
      if constexpr (kB == 2) {
        interleave(best[0], best[1], out[0], out[1]);
      } else {
        Lanes even[2], odd[2];
        interleave(best[0], best[2], even[0], even[1]);
        interleave(best[1], best[3], odd[0], odd[1]);
        interleave(even[0], odd[0], out[0], out[1]);
        interleave(even[1], odd[1], out[2], out[3]);
      }
      for (int b = 0; b < kB; ++b) store(to[i] + T::place(g * kB) + kLanes * b, out[b]);
    }
  }
}

template <int K>
static void step(const float* values, const float* w, const float* const* from, float* const* to) {
  if constexpr (K <= 2) {
    step_narrow<K>(values, w, from, to);
  } else {
    step_wide<K>(values, w, from, to);
  }
}

// Where the value of transition (p, g, b) lies in the arranged table.
template <int K>
static int value_index(int p, int g, int b) {
  constexpr int kB = Trellis<K>::kBranches;
  if constexpr (K <= 2) return ((g / 8 * kB + p) * kB + b) * 8 + g % 8;
  constexpr int kChunk = kB < 32 ? kB : 32;
  return ((g * (kB / kChunk) + b / kChunk) * kB + p) * kChunk + b % kChunk;
}

// Forward passes and walks back over two sequences of targets.
template <int K>
struct Pair {
  using T = Trellis<K>;
  const float* values;
  float* scratch;  // [tile][kRows][kRowFloats]

  // Costs before target r; kept for every kStride-th r, otherwise overwritten two steps later.
  float* row(int tile, int r) const {
    const int slot = r % T::kStride == 0 ? r / T::kStride : T::kKeptRows + r % 2;
    return scratch + (static_cast<long>(tile) * T::kRows + slot) * T::kRowFloats;
  }

  void start(float everywhere) const {
    for (int i = 0; i < kTiles; ++i)
      for (int n = 0; n < T::kRowFloats; ++n) row(i, 0)[n] = everywhere;
  }

  void forward(const float* const* targets, int n) const {
    for (int r = 0; r < n; ++r) {
      const float w[kTiles] = {targets[0][r], targets[1][r]};
      const float* from[kTiles] = {row(0, r), row(1, r)};
      float* to[kTiles] = {row(0, r + 1), row(1, r + 1)};
      step<K>(values, w, from, to);
    }
  }

  // The cost of `node` before target r, from the kept row at or before r, by the same operations as in step(): the same
  // bits.
  float cost(int tile, const float* targets, int r, int node) const {
    if (r % T::kStride == 0) return row(tile, r)[T::place(node)];
    int ignored;
    return best_into(tile, targets, r - 1, node, &ignored);
  }

  // The least cost after target r in `node`, and the p of the transition that has it; the first of equals.
  float best_into(int tile, const float* targets, int r, int node, int* best_p) const {
    const int g = node >> K, b = node & (T::kBranches - 1);
    float best = 4 * kUnreachable;
    for (int p = 0; p < T::kBranches; ++p) {
      const float error = values[value_index<K>(p, g, b)] - targets[r];
      const float total = error * error + cost(tile, targets, r, p * T::kGroups + g);
      if (total < best) best = total, *best_p = p;
    }
    return best;
  }

  // From `node` after target last - 1 back to the node before target first; states, when wanted, of the targets
  // between.
  int walk_back(int tile, const float* targets, int first, int last, int node, unsigned short* states) const {
    for (int r = last - 1; r >= first; --r) {
      int p = 0;
      best_into(tile, targets, r, node, &p);
      if (states) states[r] = static_cast<unsigned short>(p << (16 - K) | node);
      node = p * T::kGroups + (node >> K);
    }
    return node;
  }

  // Pass 1: the node before target 0 on the best free path over the targets around it.
  void boundary(const float* targets, int* nodes) const {
    float around[kTiles][2 * T::kReach];
    for (int i = 0; i < kTiles; ++i) {
      for (int r = 0; r < 2 * T::kReach; ++r)
        around[i][r] = targets[i * kTargets + (kTargets - T::kReach + r) % kTargets];
    }
    const float* const both[kTiles] = {around[0], around[1]};
    start(0);
    forward(both, 2 * T::kReach);
    for (int i = 0; i < kTiles; ++i) {
      const float* end = row(i, 2 * T::kReach);
      int node = 0;
      for (int n = 1; n < T::kNodes; ++n)
        if (end[T::place(n)] < end[T::place(node)]) node = n;
      nodes[i] = walk_back(i, around[i], T::kReach, 2 * T::kReach, node, nullptr);
    }
  }

  // Pass 2: the best path that leaves that node and comes back to it.
  void closed(const float* targets, const int* nodes, unsigned short* states) const {
    const float* const both[kTiles] = {targets, targets + kTargets};
    start(kUnreachable);
    for (int i = 0; i < kTiles; ++i) row(i, 0)[T::place(nodes[i])] = 0;
    forward(both, kTargets);
    for (int i = 0; i < kTiles; ++i) walk_back(i, both[i], 0, kTargets, nodes[i], states + i * kTargets);
  }
};

template <int K>
static void search(const float* values, const float* targets, float* scratch, unsigned short* states) {
  const Pair<K> pair{values, scratch};
  int nodes[kTiles];
  pair.boundary(targets, nodes);
  pair.closed(targets, nodes, states);
}

static void search_any(int bits, const float* values, const float* targets, float* scratch, unsigned short* states) {
  switch (bits) {
    case 1:
      return search<1>(values, targets, scratch, states);
    case 2:
      return search<2>(values, targets, scratch, states);
    case 3:
      return search<3>(values, targets, scratch, states);
    case 4:
      return search<4>(values, targets, scratch, states);
    case 5:
      return search<5>(values, targets, scratch, states);
    case 6:
      return search<6>(values, targets, scratch, states);
    case 7:
      return search<7>(values, targets, scratch, states);
    default:
      return search<8>(values, targets, scratch, states);
  }
}

template <int K>
constexpr long scratch_floats() {
  return static_cast<long>(kTiles) * Trellis<K>::kRows * Trellis<K>::kRowFloats;
}
