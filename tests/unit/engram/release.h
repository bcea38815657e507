#pragma once
// The release's Engram configuration and other inputs that several tests use.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dsf/engram/layout.h"

namespace dsf::test {

inline engram::Spec release_spec() {
  return {.layer_ids = {1, 14}, .num_embeddings = {384006168, 384016682}, .hash_vocab_size = 16000000, .max_ngram_size = 4, .n_heads = 8,
          .head_dim = 256, .pad_token_id = 2, .compressed_vocab_size = 99092, .vocab_size = 129280};
}
inline engram::Layout release_layout() {
  auto layout = engram::Layout::create(release_spec());
  REQUIRE(layout);
  return *layout;
}
// Two layers, six columns, 64 values a row: the layout of the tiny golden model.
inline engram::Spec tiny_spec() {
  return {.layer_ids = {1, 4}, .num_embeddings = {462, 630}, .hash_vocab_size = 64, .max_ngram_size = 4, .n_heads = 2,
          .head_dim = 64, .pad_token_id = 2, .compressed_vocab_size = 200, .vocab_size = 256};
}
inline engram::Layout tiny_layout() {
  auto layout = engram::Layout::create(tiny_spec());
  REQUIRE(layout);
  return *layout;
}

// The published pack fixture's record bytes: rows are table-global, j < 256 weight bytes, then scales.
inline std::byte fixture_byte(uint64_t row, uint64_t j) {
  const auto h = static_cast<uint32_t>(row * 2654435761u + j * 40503u);
  return static_cast<std::byte>(j < 256 ? (h >> 7) & 255 : 100 + ((h >> 9) % 40));
}

}  // namespace dsf::test
