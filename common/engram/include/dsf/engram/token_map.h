#pragma once
// The Engram token map: raw token id -> compressed id, so that "The", " the" and "THE" hash alike.
//
// TokenMap is a value, immutable once made, any thread. It is built from the tokenizer or read from engram_token_map.json; both are
// held against the configuration, because a wrong size changes every multiplier and so every row, silently.
// Source: engram.md section 2.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::engram {

// What the map builder needs to know of one token id.
struct TokenSpelling {
  std::string spelling;  // vocabulary entry or added-token content, UTF-8 ("Ġthe", "<｜User｜>"); empty: the id has no token
  std::string text;      // the id decoded alone, UTF-8 with U+FFFD where its bytes are not UTF-8
};

class TokenMap {
 public:
  // spelling(id) for id = 0 .. n_tokens-1, ascending. An id without token gets a key of its own.
  static TokenMap build(int64_t n_tokens, const std::function<TokenSpelling(int64_t)>& spelling);
  // A JSON array of integers, one per raw id. Errors: kMissing, kContent (not numbered by first appearance, out of range).
  static Result<TokenMap> load(const std::filesystem::path& engram_token_map_json);
  static Result<TokenMap> from_ids(std::vector<int32_t> compressed, std::string_view subject);

  int64_t size() const { return static_cast<int64_t>(map_.size()); }      // raw ids
  int64_t compressed_size() const { return compressed_size_; }            // distinct compressed ids
  const std::vector<int32_t>& ids() const { return map_; }
  // Compressed id, or kDead when raw is outside the map.
  int32_t at(int64_t raw) const { return raw >= 0 && raw < size() ? map_[static_cast<size_t>(raw)] : kDead; }
  // SHA-256 of the map as u32 little endian, hex: identifies it in records.
  std::string digest() const;
  // Errors: kContent when the map does not have these sizes.
  Result<void> expect(int64_t vocab_size, int64_t compressed_vocab_size, std::string_view subject) const;

  static constexpr int32_t kDead = -1;

 private:
  std::vector<int32_t> map_;
  int64_t compressed_size_ = 0;
};

// The eight normalisation steps; text must be valid UTF-8 (bytes that are not become U+FFFD).
std::string normalize(std::string_view text);

}  // namespace dsf::engram
