#pragma once
// How a matrix is cut over thread blocks: pure functions of shape and SM count, tested on the CPU.
#include <algorithm>

namespace dsf::serve::ops::exl3 {

inline constexpr int kBlocksPerSm = 4;      // thread blocks that share an SM
inline constexpr int kMaxChunkBlocks = 6;   // 6 * 8.1 KiB of activation image a thread block: four of them fit in 227 KiB

inline constexpr int kMaxColumns = 4;       // columns a thread block takes at most: more blocks than slots balance themselves
inline constexpr int kOwnPieces = 16;       // rows * blocks of k that a thread block transforms itself

// The k axis in `chunks` pieces of at most kMaxChunkBlocks * 128, the columns in groups of `columns` blocks of 128.
// Sums are formed per chunk and added in chunk order, so the plan fixes the bits of a result: it must not depend on the number of rows.
struct Plan {
  int chunks = 1, columns = 1, groups = 1;
  int items() const { return chunks * groups; }
};

// Chunks of k of an expert's matrix; like Plan::chunks they fix the bits of a result.
inline int moe_chunks(int k) { return (k / 128 + kMaxChunkBlocks - 1) / kMaxChunkBlocks; }

// Share of an SM's rate that n thread blocks reach together (H200, see docs/performance-exl3.md).
inline double sm_share(int n) { return n >= 4 ? 1.0 : n == 3 ? 0.9 : n == 2 ? 0.75 : 0.45; }

// Cost in units of one 128 x 128 block's decoding; adding up one chunk's partial sums costs a pass over the outputs and some latency.
inline Plan plan(int in, int out, int n_sms) {
  const int kb = in / 128, cb = out / 128;
  Plan best;
  double best_cost = 1e30;
  for (int chunks = (kb + kMaxChunkBlocks - 1) / kMaxChunkBlocks; chunks <= kb; ++chunks) {
    const int slots = std::max(1, n_sms * kBlocksPerSm / chunks);
    const int columns = std::min(kMaxColumns, (cb + slots - 1) / slots);
    const int groups = (cb + columns - 1) / columns;
    const int per_sm = (chunks * groups + n_sms - 1) / n_sms;
    const double blocks_per_sm = columns == kMaxColumns ? static_cast<double>(kb) * cb / n_sms : static_cast<double>(per_sm) * kb / chunks * columns;
    const double cost = blocks_per_sm / sm_share(per_sm) + (chunks - 1) * (0.1 + 3e-5 * out);
    if (cost < best_cost) best_cost = cost, best = Plan{chunks, columns, groups};
  }
  return best;
}

}  // namespace dsf::serve::ops::exl3
