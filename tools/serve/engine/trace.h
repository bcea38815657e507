#pragma once
// Trace: an optional look into a step, for tests and for holding one backend against another layer by layer.
//
// Every member may be empty. Spans are borrowed for the call. Layer numbers are the backbone's; draft stage k is
// reported as layer num_hidden_layers + k. Rows are those of the step, in order; ids of a selection are given per item
// (row_begin is the item's first).
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace dsf::serve {

struct Trace {
  // The streams [n, S, D] and pre [n, S] entering a layer, before its Engram. The callee may overwrite them (to inject
  // a reference's).
  std::function<void(int64_t layer, std::span<float> x, std::span<float> pre)> enter;
  // "engram_x" [n, S, D], "attn_out" [n, D], "moe_out" [n, D], "x" [n, S, D] and "pre" [n, S] leaving a layer,
  // "expert_weights" [n, k], "main_hidden" [n, n_targets * D] (layer -1), "main_x" [n, D] (layer -1).
  std::function<void(std::string_view what, int64_t layer, std::span<const float> values, int64_t n_rows)> values;
  // "expert_ids" [n, k]; of index sources "topk" [n, index_topk] and of the candidate source "candidate_blocks" [n,
  // candidate_topk_blocks].
  std::function<void(std::string_view what, int64_t layer, int64_t row_begin, std::span<const int32_t> ids,
                     int64_t n_rows)>
      ids;
};

}  // namespace dsf::serve
