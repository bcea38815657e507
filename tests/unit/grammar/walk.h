#pragma once
// Texts of a grammar, and whether a text is one.
#include <doctest/doctest.h>

#include "draw.h"
#include "dsf/test/support.h"

namespace dsf::test {

inline const tokenizer::Tokenizer& mini() {
  static const auto tok = tokenizer::Tokenizer::load(golden() / "tokenizer/mini_tokenizer.json");
  REQUIRE(tok.has_value());
  return *tok;
}
inline std::shared_ptr<const serve::grammar::TokenTrie> mini_trie() {
  static const auto trie =
      std::make_shared<const serve::grammar::TokenTrie>(serve::grammar::TokenTrie::make(mini(), mini().id_limit()));
  return trie;
}

inline json::Value parse_json(std::string_view text) {
  auto value = json::parse(text, "test");
  REQUIRE_MESSAGE(value.has_value(), text);
  return *value;
}
inline serve::grammar::Grammar compiled(std::string_view schema) {
  auto out = serve::grammar::of_schema(parse_json(schema), "schema");
  REQUIRE_MESSAGE(out.has_value(), (out ? "" : out.error().line()));
  return *out;
}

inline bool is_text(const serve::grammar::Grammar& grammar, std::string_view text) {
  serve::grammar::Matcher m(grammar, mini_trie());
  return m.advance(text) && m.may_end();
}

// Empty when it did not end within max_tokens.
inline std::string random_text(const serve::grammar::Grammar& grammar, uint64_t seed, int max_tokens = 400) {
  bool stuck = false;
  std::string text = draw(grammar, mini(), mini_trie(), seed, max_tokens, stuck);
  REQUIRE_FALSE(stuck);
  return text;
}

}  // namespace dsf::test
