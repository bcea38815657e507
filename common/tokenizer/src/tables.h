#pragma once
// What a Tokenizer holds once its file has been read. Immutable; built by read_tables().
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.h"
#include "bpe.h"
#include "dsf/tokenizer/tokenizer.h"
#include "pre_tokenizer.h"
#include "string_map.h"

namespace dsf::tokenizer {

struct Entry {
  std::string_view token, bytes;  // into Tables::arena
  bool present = false, added = false, special = false;
};

struct Tokenizer::Tables {
  explicit Tables(PreTokenizer p) : pre_tokenizer(std::move(p)) {}
  std::string subject;
  std::string arena;           // never grows after its views were taken
  std::vector<Entry> entries;  // by id
  int64_t n_tokens = 0;
  StringMap ids;  // token string -> id
  Bpe bpe;
  AddedTokenMatcher raw, normalized;  // the two passes of serving.md 1.2
  PreTokenizer pre_tokenizer;
};

// Errors: kContent.
Result<std::shared_ptr<const Tokenizer::Tables>> read_tables(std::string_view json_text, std::string_view subject);

}  // namespace dsf::tokenizer
