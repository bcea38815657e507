#pragma once
// Token window -> table rows: the n-gram hash with its look-back, streaming over chunks.
//
// Hasher is immutable, any thread. HashState belongs to one sequence and is a small value: copy it to draft, keep the copy to roll
// back. Rows depend on token ids alone, so chunking never changes them. Source: engram.md sections 3.3 and 5.6.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/layout.h"
#include "dsf/engram/token_map.h"

namespace dsf::engram {

// The compressed ids of the last max_ngram_size - 1 positions, newest last; TokenMap::kDead before the start and at image positions.
struct HashState {
  std::vector<int32_t> tail;
  bool operator==(const HashState&) const = default;
};

class Hasher {
 public:
  // Errors: kContent when the map's sizes are not the layout's; subject names where the map came from.
  static Result<Hasher> create(Layout layout, TokenMap map, std::string_view subject);

  const Layout& layout() const { return layout_; }
  const TokenMap& map() const { return map_; }
  HashState start() const;  // position 0 of a sequence

  // Rows of the next tokens of a sequence, and the state after them.
  //   tokens: [n] raw ids; an id outside the vocabulary is dead
  //   dead: empty, or [n], non-zero at image positions (their gate is 0; rows are still given: all slots pad)
  //   rows: [n, n_layers, columns], row-major, written; size must match (DSF_CHECK)
  void rows(HashState& state, std::span<const int32_t> tokens, std::span<const uint8_t> dead, std::span<int64_t> rows) const;
  // Appends tokens without computing rows (to restore a state before a resume position).
  void advance(HashState& state, std::span<const int32_t> tokens, std::span<const uint8_t> dead) const;

 private:
  Hasher(Layout layout, TokenMap map) : layout_(std::move(layout)), map_(std::move(map)) {}
  Layout layout_;
  TokenMap map_;
  int64_t pad_ = 0;
};

}  // namespace dsf::engram
