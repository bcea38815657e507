#pragma once
// How many groups of four rows a thread block of the many-row kernels takes: a pure function, tested on the CPU. It does not touch the bits.
#include <cstddef>

namespace dsf::serve::ops::exl3 {

inline constexpr int kTileGroups[] = {4, 8, 12};
inline constexpr int kTilesPerSm[] = {4, 3, 2};  // thread blocks that share an SM (registers)

// Clocks of one 128-block of k in a thread block: decoding, and products of every group.
inline double tile_cost(int groups) { return 900.0 + 100.0 * groups; }

// Index into kTileGroups. n_groups: groups of one column's rows; n_columns: columns of 128 in the launch; shared_bytes: what a block may use.
inline int tile_choice(int n_groups, int n_columns, int n_sms, size_t shared_bytes, const size_t (&needs)[3]) {
  int best = 0;
  double best_cost = 1e300;
  for (int i = 0; i < 3; ++i) {
    if (needs[i] > shared_bytes) continue;
    const int tiles = (n_groups + kTileGroups[i] - 1) / kTileGroups[i];
    const int slots = n_sms * kTilesPerSm[i], waves = (tiles * n_columns + slots - 1) / slots;
    // Blocks of one SM share its pipes: a full wave takes as long as its blocks' work one behind the other.
    const int per_sm = waves > 1 ? waves * kTilesPerSm[i] : (tiles * n_columns + n_sms - 1) / n_sms;
    const int filled = n_groups < kTileGroups[i] ? n_groups : kTileGroups[i];
    const double cost = per_sm * tile_cost(filled);
    if (cost < best_cost) best_cost = cost, best = i;
  }
  return best;
}

}  // namespace dsf::serve::ops::exl3
