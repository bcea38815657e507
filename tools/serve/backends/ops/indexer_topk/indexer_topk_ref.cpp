#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/indexer_topk/indexer_topk.h"

namespace dsf::serve::ops {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Writes the indices of the (at most out.size()) best finite-or-forced scores, ascending, then -1.
void select_best(std::span<const float> score, std::span<int32_t> out) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < score.size(); ++i) {
    if (score[i] > kNever) order.push_back(static_cast<int32_t>(i));
  }
  const size_t n = std::min(order.size(), out.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    [&](int32_t a, int32_t b) {
                      const float sa = score[static_cast<size_t>(a)], sb = score[static_cast<size_t>(b)];
                      return sa != sb ? sa > sb : a < b;
                    });
  std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n));
  std::copy_n(order.begin(), n, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(n), out.end(), -1);
}

}  // namespace

void index_score_ref(const IndexScoreArgs& a) {
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* keys = a.keys + (a.keys_offset != nullptr ? a.keys_offset[r] * a.dim : 0);
    for (int64_t g = 0; g < a.n_keys; ++g) {
      float sum = 0;
      for (int64_t h = 0; h < a.n_heads && g < a.visible[r]; ++h) {
        sum += a.weight[r * a.n_heads + h] * std::max(0.0f, dot(a.q + (r * a.n_heads + h) * a.dim, keys + g * a.dim, a.dim));
      }
      a.score[r * a.n_keys + g] = g < a.visible[r] ? sum : kNever;
    }
  }
}

void candidate_blocks_ref(const CandidateBlocksArgs& a) {
  const int64_t n_blocks = (a.n_keys + a.block_size - 1) / a.block_size;
  std::vector<float> best(static_cast<size_t>(n_blocks));
  for (int64_t r = 0; r < a.n_rows; ++r) {
    std::fill(best.begin(), best.end(), kNever);
    for (int64_t g = 0; g < a.n_keys; ++g) {
      float& b = best[static_cast<size_t>(g / a.block_size)];
      b = std::max(b, a.score[r * a.n_keys + g]);
    }
    if (a.visible[r] > 0)
      best[static_cast<size_t>((a.visible[r] - 1) / a.block_size)] = std::numeric_limits<float>::infinity();
    select_best(best, {a.blocks + r * a.max_blocks, static_cast<size_t>(a.max_blocks)});
  }
}

void topk_ref(const TopkArgs& a) {
  std::vector<float> allowed(static_cast<size_t>(a.n_keys));
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const float* score = a.score + r * a.n_keys;
    if (a.blocks == nullptr) {
      std::copy_n(score, a.n_keys, allowed.begin());
    } else {
      std::fill(allowed.begin(), allowed.end(), kNever);
      for (int64_t b = 0; b < a.max_blocks && a.blocks[r * a.max_blocks + b] >= 0; ++b) {
        const int64_t first = a.blocks[r * a.max_blocks + b] * a.block_size;
        for (int64_t g = first; g < std::min(first + a.block_size, a.n_keys); ++g)
          allowed[static_cast<size_t>(g)] = score[g];
      }
    }
    select_best(allowed, {a.selection + r * a.k, static_cast<size_t>(a.k)});
  }
}

}  // namespace dsf::serve::ops
