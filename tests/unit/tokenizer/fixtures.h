#pragma once
// What the tokenizer tests share: the committed small tokenizer and the release's reconstruction, each loaded once.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/test/support.h"
#include "dsf/tokenizer/tokenizer.h"

namespace dsf::test {

inline std::string read(const std::filesystem::path& path) {
  auto text = io::read_text(path);
  REQUIRE_MESSAGE(text, path.string());
  return *text;
}
inline std::string mini_json() { return read(golden() / "tokenizer/mini_tokenizer.json"); }

inline const tokenizer::Tokenizer& mini_tokenizer() {
  static const auto tok = tokenizer::Tokenizer::parse(mini_json(), "mini_tokenizer.json");
  REQUIRE_MESSAGE(tok, (tok ? std::string() : tok.error().line()));
  return *tok;
}
// nullptr, after a visible skip, when the shared data is not there.
inline const tokenizer::Tokenizer* release_tokenizer(std::string_view what) {
  if (shared_data().empty()) {
    skip(what, "shared data not present");
    return nullptr;
  }
  static const auto tok = tokenizer::Tokenizer::load(shared_data() / "tokenizer_v41_reconstructed.json");
  REQUIRE_MESSAGE(tok, (tok ? std::string() : tok.error().line()));
  return &*tok;
}
inline std::vector<tokenizer::TokenId> ids_of(const json::Value& array) {
  std::vector<tokenizer::TokenId> out;
  for (const json::Value& v : array.as_array()) out.push_back(static_cast<tokenizer::TokenId>(*v.to_i64()));
  return out;
}
inline json::Value parse_json(std::string_view text) {
  auto value = json::parse(text, "test");
  REQUIRE_MESSAGE(value, (value ? std::string() : value.error().line()));
  return *value;
}

}  // namespace dsf::test
