#pragma once
// The vocabulary as a tree of bytes, laid out in preorder, so that one sweep finds every token that a language allows.
//
// Immutable; any number of threads may share one. Added tokens are left out: a control token is never part of a
// formatted reply, even where its spelling would fit.
#include <cstdint>
#include <vector>

#include "dsf/tokenizer/tokenizer.h"

namespace dsf::serve::grammar {

// Entry i > 0 is reached from its parent by byte[i]; its descendants are the entries i + 1 .. end[i] - 1. Entry 0 is
// the root. token[i]: the id spelled by the path, or -1. Of several ids of the same bytes all but the last have an
// entry without descendants.
struct TokenTrie {
  std::vector<uint8_t> byte;
  std::vector<uint16_t> depth;  // of entry i; 0: root
  std::vector<int32_t> end, token;
  int64_t n_ids = 0;  // ids of the model's vocabulary
  size_t deepest = 0;

  // Ids at or beyond vocab_size are left out. Tokens longer than 65,535 bytes are too.
  static TokenTrie make(const tokenizer::Tokenizer& tokenizer, int64_t vocab_size);
};

}  // namespace dsf::serve::grammar
