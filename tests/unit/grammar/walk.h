#pragma once
// Texts of a grammar, and whether a text is one.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "dsf/test/support.h"
#include "tools/serve/grammar/grammar.h"
#include "tools/serve/grammar/matcher.h"

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

// A text spelled by tokens drawn evenly from those allowed, ended as soon as a coin says so; empty when max_tokens did
// not suffice.
inline std::string random_text(const serve::grammar::Grammar& grammar, uint64_t seed, int max_tokens = 400) {
  serve::grammar::Matcher m(grammar, mini_trie());
  std::mt19937_64 rng(seed);
  std::string text;
  std::vector<int32_t> allowed;
  for (int i = 0; i < max_tokens; ++i) {
    m.allowed(allowed);
    if (m.may_end() && (allowed.empty() || rng() % 3 == 0)) return text;
    REQUIRE_FALSE(allowed.empty());
    const int32_t id = allowed[rng() % allowed.size()];
    REQUIRE(m.advance(mini().bytes(id)));
    text += mini().bytes(id);
  }
  return {};
}

}  // namespace dsf::test
