#pragma once
// What a session holds between steps, and what one step works on.
//
// Everything in a session is addressed by absolute position, and rings keep max_step_tokens positions more than a
// window needs: a step may write all its rows before any is read, and a session can be cut back by up to
// max_step_tokens positions by changing its length. The engine owns sessions; one thread. Source: model.md sections 4.8
// and 5, engram.md section 5.6, serving.md section 6.3.
#include <cstdint>
#include <span>
#include <vector>

#include "tools/serve/engine/engine.h"
#include "tools/serve/engine/weights.h"

namespace dsf::serve {

// Position p lies at slot p % rows.
struct Ring {
  Vec values;  // [rows, dim]
  int64_t rows = 0, dim = 0;
  Ring() = default;
  Ring(int64_t n_rows, int64_t width) : values(static_cast<size_t>(n_rows * width)), rows(n_rows), dim(width) {}
  // Stores consecutive positions from first on. v: [n, dim]
  void store(int64_t first, std::span<const float> v);
};

// Of one KV source layer.
struct SourceCache {
  Ring value,
      gate;  // the compressor's projections; gate is empty at ratio 1. They hold the open group's tokens (the carry)
  Vec rows;  // [n_groups, head_dim] compressed rows, rotated and quantised
  Vec index_keys;  // [n_groups, index_head_dim]
};

struct SessionState {
  SessionId id = -1;
  std::vector<int32_t> tokens;       // ids held; size() is the session's length
  std::vector<Ring> window;          // [num_hidden_layers] of head_dim
  std::vector<SourceCache> sources;  // [num_hidden_layers]; used at KV sources
  std::vector<Ring> draft_window;    // [draft stages] of head_dim: context keys of the drafter
};

// One session's rows in a step: rows row_begin .. row_begin + n_rows - 1 are its positions start .. start + n_rows - 1.
struct StepRows {
  SessionState* session = nullptr;
  int64_t row_begin = 0, n_rows = 0, start = 0;
  std::vector<int32_t> selection;         // [n_rows, index_topk] of the latest index source
  std::vector<int32_t> candidate_blocks;  // [n_rows, candidate_topk_blocks] of the candidate source
};

struct Step {
  std::vector<StepRows> items;
  std::vector<int32_t> tokens;     // [n]
  std::vector<int64_t> positions;  // [n]
  std::vector<Vec> engram;         // per Engram layer: [n, columns * engram_head_dim]
  Vec x;                           // [n, S, D] streams
  Vec pre;                         // [n, S]
  Vec taps;                        // [n, n_targets * D] with a drafter, otherwise empty
  int64_t n_rows() const { return std::ssize(tokens); }
};

}  // namespace dsf::serve
