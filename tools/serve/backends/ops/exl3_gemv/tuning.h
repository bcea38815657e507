#pragma once
// How matrices are cut over thread blocks: pure functions of shapes and SM count, tested on the CPU.
//
// A matrix is T = (out / 128) * (in / 128) blocks in the order [chunk of k][column][k in chunk]. Teams take consecutive ranges of equal
// length, whatever columns they cut: team j of W has the blocks [j T / W, (j + 1) T / W). A column's sum is added up from the teams'
// parts in this order, so the cut fixes the bits of a result: it must never depend on the number of rows.
#include <algorithm>

namespace dsf::serve::ops::exl3 {

inline constexpr int kMaxDepth = 12;        // blocks of k in a chunk
inline constexpr int kMaxImageBlocks = 25;  // 25 * 8.1 KiB of image for 8 rows, in the 227 KiB of sm_90; sm_121 holds 12 for 8 rows

// Chunks of the k axis of kb blocks: the largest divisor up to kMaxDepth.
inline int chunk_depth(int kb) {
  int depth = std::min(kb, kMaxDepth);
  while (kb % depth != 0) --depth;
  return depth;
}

// Teams for a matrix of T blocks that gets n_blocks thread blocks: no team is empty.
inline int teams(int T, int n_blocks) { return std::min(4 * n_blocks, T); }

// Thread blocks for matrix i of several, in proportion to their size, at least one each. total: sum of sizes.
inline int share(int size, int total, int n_sms) { return std::max(1, static_cast<int>((static_cast<long long>(n_sms) * size + total / 2) / total)); }

}  // namespace dsf::serve::ops::exl3
