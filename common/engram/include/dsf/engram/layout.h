#pragma once
// Engram tables: the hash constants of every layer and the split of a table over ranks, from the configuration alone.
//
// Values, immutable once made, any thread. A layer's table is hashed by C columns (n-gram order outer, head inner); column c owns
// the rows [offset[c], offset[c] + prime[c]) of the table. Row ids are table-global everywhere in this library.
// Source: engram.md sections 1, 3.1, 3.2, 6.3.
#include <cstdint>
#include <string>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::engram {

// The Engram part of config.json (model::engram_spec() copies it out of a model::Config).
struct Spec {
  std::vector<int64_t> layer_ids;         // backbone layers with a table, 0-based
  std::vector<int64_t> num_embeddings;    // rows of each layer's table
  int64_t hash_vocab_size = 0;            // engram_vocab_size: where the prime search starts
  int64_t max_ngram_size = 0;             // orders 2 .. this
  int64_t n_heads = 0;                    // hash heads per order
  int64_t head_dim = 0;                   // values per row, a multiple of 32
  int64_t pad_token_id = 0;               // raw id whose compressed id fills dead slots
  int64_t compressed_vocab_size = 0;      // distinct compressed ids; every multiplier depends on it
  int64_t vocab_size = 0;                 // raw ids
};

struct LayerConstants {
  int64_t layer_id = 0;
  int64_t rows = 0;                       // sum of primes
  std::vector<int64_t> multipliers;       // [max_ngram_size], odd; [0] is the current token's
  std::vector<int64_t> primes, offsets;   // [columns]
};

struct RowRange {  // [begin, end)
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool contains(int64_t row) const { return row >= begin && row < end; }
  bool operator==(const RowRange&) const = default;
};

class Layout {
 public:
  // Errors: kContent when a field is out of range, or when the primes of a layer do not add up to num_embeddings.
  static Result<Layout> create(const Spec& spec);

  const Spec& spec() const { return spec_; }
  // One per entry of spec().layer_ids, in that order. "layer index" below means a position here, not the layer id.
  const std::vector<LayerConstants>& layers() const { return layers_; }
  int64_t columns() const { return (spec_.max_ngram_size - 1) * spec_.n_heads; }
  int64_t head_dim() const { return spec_.head_dim; }
  int64_t scale_bytes() const { return spec_.head_dim / 32; }          // e8m0, one per 32 values
  int64_t row_bytes() const { return head_dim() + scale_bytes(); }     // one packed record

  // Columns and rows that a rank owns: whole hash heads, ceil(columns / world) each, so the last rank may have fewer.
  // Errors: kUsage when rank or world is out of range, or some rank of that world would own no column.
  Result<RowRange> rank_columns(int rank, int world) const;
  Result<RowRange> rank_rows(size_t layer_index, int rank, int world) const;

 private:
  Spec spec_;
  std::vector<LayerConstants> layers_;
};

// Parts of the constants, for tests and for people who debug them.
std::vector<int64_t> hash_multipliers(int64_t layer_id, int64_t compressed_vocab_size, int64_t max_ngram_size);
bool is_prime(uint64_t n);  // exact below 2^32

}  // namespace dsf::engram
