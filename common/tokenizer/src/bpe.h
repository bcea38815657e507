#pragma once
// Byte-pair merging of one piece: always the adjacent pair of lowest rank, the leftmost of equals (serving.md 1.2 step 5).
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "string_map.h"

namespace dsf::tokenizer {

class Bpe {
 public:
  Bpe() { byte_ids_.fill(-1); }

  void reserve(size_t n_tokens, size_t n_merges);
  // A base-vocabulary token by the bytes it stands for; bytes must outlive this object.
  void add_token(std::string_view bytes, int32_t id);
  // Pair -> merged token. The later of two equal pairs counts, as in the reference.
  void add_merge(int32_t left, int32_t right, int32_t rank, int32_t merged);
  // Call once after the last add: finds the tokens that merging their own bytes gives back, which need no merging later.
  void finish(const std::vector<std::pair<std::string_view, int32_t>>& tokens);

  // Appends the ids of one piece. Bytes without a token are dropped.
  void encode(std::string_view piece, std::vector<int32_t>& out) const;

  // The two ways to merge; equal results. Below this many symbols scanning beats a heap.
  static constexpr size_t kScanLimit = 48;
  void merge_by_scan(std::vector<int32_t>& symbols) const;
  void merge_by_heap(std::vector<int32_t>& symbols) const;

 private:
  struct Merge {
    uint64_t pair = ~uint64_t{0};
    int32_t rank = 0;
    int32_t merged = 0;
  };
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static size_t slot_of(uint64_t pair) {
    const uint64_t h = pair * 0x9E3779B97F4A7C15ULL;
    return h ^ h >> 32;
  }
  const Merge* find_merge(int32_t left, int32_t right) const;
  void merge(std::vector<int32_t>& symbols) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merge> merges_;
  StringMap whole_;  // bytes -> id, of tokens that are their own encoding
};

}  // namespace dsf::tokenizer
