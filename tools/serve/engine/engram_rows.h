#pragma once
// EngramRows: token ids of a session's next positions -> the concatenated Engram rows that each Engram layer's wkv
// multiplies.
//
// Owns the hasher and the row source. Const members from any thread. The look-back is a function of the session's
// tokens, so nothing is kept between steps and chunking or cutting a session back changes nothing. Source: engram.md
// sections 3.3, 5.2, 5.6.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/hash.h"
#include "dsf/engram/rows.h"
#include "dsf/model/config.h"

namespace dsf::serve {

class EngramRows {
 public:
  // Whose rows: rank `rank` of `world` reads its own hash heads alone.
  struct Owner {
    int rank = 0, world = 1;
  };
  // engram_dir: a folder with the owner's packed row files, or every rank's of one world size; empty: the tables in the
  // checkpoint itself. map: the token map, or nothing to take it from the model folder (tokenizer.json, else
  // engram_token_map.json).
  static Result<EngramRows> open(const model::Config& config, const std::filesystem::path& model_dir,
                                 const std::filesystem::path& engram_dir, std::optional<engram::TokenMap> map,
                                 Owner owner);

  // Rows made from their numbers, and a token map of the right size: for engines without files (--load-format dummy).
  static Result<EngramRows> dummy(const model::Config& config, Owner owner);

  // tokens: the whole session including the new ones; the last n_new are asked for. Appends to values[layer index]:
  // [n_new, the owner's columns * head_dim]. Errors: kLocal, kContent from reading rows.
  Result<void> append(std::span<const int32_t> tokens, int64_t n_new, std::vector<std::vector<float>>& values) const;

  // The table rows that append() would read, [layer index][n_new * columns]; they depend on the ids alone.
  std::vector<std::vector<int64_t>> locate(std::span<const int32_t> tokens, int64_t n_new) const;
  const engram::RowSource& source() const { return *source_; }

  int64_t n_layers() const { return std::ssize(hasher_.layout().layers()); }
  std::vector<std::pair<std::string, std::string>> identity() const;

 private:
  EngramRows(engram::Hasher hasher, std::unique_ptr<engram::RowSource> source, engram::RowRange columns)
      : hasher_(std::move(hasher)), source_(std::move(source)), columns_(columns) {}
  engram::Hasher hasher_;
  std::unique_ptr<engram::RowSource> source_;
  engram::RowRange columns_;  // the owner's
};

}  // namespace dsf::serve
