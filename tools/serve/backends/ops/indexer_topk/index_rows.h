#pragma once
// index_rows, select_rows: indexer_topk over the rows of a step, whatever their sessions and lengths: what a device
// runs.
//
// The rules are indexer_topk.h's. Two things differ: nothing past what a query sees is written or read, so n_keys may
// be the longest that can come and a launch depends on no position; and a query limited to candidate blocks has scores
// for their rows alone, in the blocks' order. Any thread; rows are independent. Source: model.md section 4.5.
#include <cstdint>

#include "tools/serve/backends/ops/indexer_topk/indexer_topk.h"

namespace dsf::serve::ops {

// score[r][i] is that of row i or, with blocks, of row blocks[r][i / block_size] * block_size + i % block_size,
// -infinity where there is none.
struct IndexRowsArgs {
  const float* q = nullptr;              // [n_rows, n_heads, dim], rotated and quantised
  const float* weight = nullptr;         // [n_rows, n_heads]
  const float* keys = nullptr;           // [*, dim]
  const int64_t* keys_offset = nullptr;  // [n_rows] where the row's session begins in keys
  const int64_t* visible = nullptr;      // [n_rows]
  const int32_t* blocks = nullptr;       // [n_rows, max_blocks], or nullptr
  float* score = nullptr;                // [n_rows, n_keys]
  int64_t n_rows = 0, n_heads = 0, dim = 0;
  int64_t n_keys = 0;  // at least the most a row sees; with blocks max_blocks * block_size
  int64_t block_size = 0, max_blocks = 0;
  int64_t skip =
      0;  // queries that see no more than this many rows are left out: they take all of them, whatever the scores
};
void index_rows_ref(const IndexRowsArgs& a);

// The k best rows. Scores of rows a query sees are finite; with no more than k of them, all are taken and score is not
// read.
struct SelectRowsArgs {
  const float* score = nullptr;      // as index_rows leaves it
  const int64_t* visible = nullptr;  // [n_rows]
  const int32_t* blocks = nullptr;   // as for index_rows
  int32_t* selection = nullptr;      // [n_rows, k]
  int64_t n_rows = 0, n_keys = 0, k = 0, block_size = 0, max_blocks = 0;
};
void select_rows_ref(const SelectRowsArgs& a);

}  // namespace dsf::serve::ops
