#include <algorithm>
#include <limits>
#include <vector>

#include "tools/serve/backends/ops/indexer_topk/index_rows.h"

namespace dsf::serve::ops {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The row at place i of a query's list, or -1.
int64_t row_at(const int32_t* blocks, int64_t block_size, int64_t i, int64_t visible) {
  const int64_t block = blocks != nullptr ? blocks[i / block_size] : 0;
  const int64_t row = blocks != nullptr ? block * block_size + i % block_size : i;
  return block >= 0 && row < visible ? row : -1;
}

}  // namespace

void index_rows_ref(const IndexRowsArgs& a) {
  std::vector<float> all;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int64_t visible = a.visible[r];
    if (visible <= a.skip) continue;
    all.resize(static_cast<size_t>(visible));
    index_score_ref({.q = a.q + r * a.n_heads * a.dim,
                     .weight = a.weight + r * a.n_heads,
                     .keys = a.keys,
                     .visible = &visible,
                     .score = all.data(),
                     .n_rows = 1,
                     .n_heads = a.n_heads,
                     .dim = a.dim,
                     .n_keys = visible,
                     .keys_offset = a.keys_offset + r});
    for (int64_t i = 0; i < (a.blocks != nullptr ? a.n_keys : visible); ++i) {
      const int64_t row = row_at(a.blocks != nullptr ? a.blocks + r * a.max_blocks : nullptr, a.block_size, i, visible);
      a.score[r * a.n_keys + i] = row >= 0 ? all[static_cast<size_t>(row)] : kNever;
    }
  }
}

void select_rows_ref(const SelectRowsArgs& a) {
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int64_t visible = a.visible[r], listed = a.max_blocks * a.block_size;
    const bool all = visible <= a.k && (a.blocks == nullptr || visible <= listed);
    std::vector<float> score(static_cast<size_t>(visible), all ? 0.0f : kNever);
    for (int64_t i = 0; i < (a.blocks != nullptr ? listed : visible) && !all; ++i) {
      const int64_t row = row_at(a.blocks != nullptr ? a.blocks + r * a.max_blocks : nullptr, a.block_size, i, visible);
      if (row >= 0) score[static_cast<size_t>(row)] = a.score[r * a.n_keys + i];
    }
    topk_ref({.score = score.data(), .selection = a.selection + r * a.k, .n_rows = 1, .n_keys = visible, .k = a.k});
  }
}

}  // namespace dsf::serve::ops
