#pragma once
// indexer_topk: which compressed rows a query attends to: scores, the candidate blocks, and the selection.
//
// Key: n_keys compressed rows exist, a query sees the first visible[r] of them. Scores of rows it does not see are
// -infinity and are never selected. Ties go to the lower index. Lists are ascending and padded with -1. Any thread;
// rows are independent. Source: model.md section 4.5, section 12 row 6, section 13 item 1.
#include <cstdint>

namespace dsf::serve::ops {

// score[r][g] = sum_h weight[r][h] * max(0, q[r][h] . key[g])
struct IndexScoreArgs {
  const float* q = nullptr;          // [n_rows, n_heads, dim], rotated and quantised
  const float* weight = nullptr;     // [n_rows, n_heads], scaled by dim^-0.5 * n_heads^-0.5
  const float* keys = nullptr;       // [n_keys, dim]
  const int64_t* visible = nullptr;  // [n_rows]
  float* score = nullptr;            // [n_rows, n_keys]
  int64_t n_rows = 0, n_heads = 0, dim = 0, n_keys = 0;
  const int64_t* keys_offset = nullptr;  // [n_rows] where the row's session begins in keys; nullptr: 0. keys holds at least visible rows there
};
void index_score_ref(const IndexScoreArgs& a);

// The best blocks of block_size consecutive rows by their best score; the block with the newest visible row is always
// kept and counts.
struct CandidateBlocksArgs {
  const float* score = nullptr;      // [n_rows, n_keys]
  const int64_t* visible = nullptr;  // [n_rows]
  int32_t* blocks = nullptr;         // [n_rows, max_blocks]
  int64_t n_rows = 0, n_keys = 0, block_size = 0, max_blocks = 0;
};
void candidate_blocks_ref(const CandidateBlocksArgs& a);

// The k best rows, of the candidate blocks only when blocks is given.
struct TopkArgs {
  const float* score = nullptr;     // [n_rows, n_keys]
  const int32_t* blocks = nullptr;  // [n_rows, max_blocks], or nullptr
  int32_t* selection = nullptr;     // [n_rows, k]
  int64_t n_rows = 0, n_keys = 0, k = 0, block_size = 0, max_blocks = 0;
};
void topk_ref(const TopkArgs& a);

}  // namespace dsf::serve::ops
