#pragma once
// sparse_attention: every head of a query over one list of shared K=V vectors: its window rows, oldest first, then
// selected rows, ascending. A per-head sink logit enters the denominator only.
//
//   s_u = q_h . k_u * scale;  m = max_u s_u;  o_h = sum_u exp(s_u - m) k_u / (sum_u exp(s_u - m) + exp(sink_h - m))
//
// The same op serves the backbone (selected rows are the compressed cache) and the draft blocks (selected rows are the
// block's own keys, which every slot sees). Window and selected rows may cover the same token; nothing is removed. An
// empty list gives zeros. Any thread; rows are independent. Source: model.md section 4.6, serving.md section 6.4.
#include <cstdint>

namespace dsf::serve::ops {

struct SparseAttentionArgs {
  const float* q = nullptr;               // [n_rows, n_heads, head_dim], rotated
  const float* window = nullptr;          // ring [ring_rows, head_dim]: position p at slot p % ring_rows
  const int64_t* window_begin = nullptr;  // [n_rows] first window position
  const int64_t* window_end = nullptr;    // [n_rows] one past the last
  const float* rows = nullptr;            // [*, head_dim] rows that the selection names; nullptr when n_selected is 0
  const int32_t* selection = nullptr;     // [n_rows, n_selected] ascending, padded with -1
  const float* sink = nullptr;            // [n_heads]
  float* out = nullptr;                   // [n_rows, n_heads, head_dim]
  int64_t n_rows = 0, n_heads = 0, head_dim = 0, ring_rows = 0, n_selected = 0;
  float scale = 1;                        // head_dim^-0.5
  // Several sessions in one call: the row's session begins that many rows into window and rows. nullptr: 0 for every row.
  const int64_t* window_offset = nullptr;  // [n_rows]
  const int64_t* rows_offset = nullptr;    // [n_rows]
};
void sparse_attention_ref(const SparseAttentionArgs& a);

}  // namespace dsf::serve::ops
