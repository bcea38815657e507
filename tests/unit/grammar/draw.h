#pragma once
// A random text of a grammar.
#include <random>
#include <string>

#include "tools/serve/grammar/grammar.h"
#include "tools/serve/grammar/matcher.h"

namespace dsf::test {

// Spelled by tokens drawn evenly from those allowed, ended as soon as a coin says so. Empty when max_tokens did not
// suffice, or (never, if masks are right) when nothing was left or a token allowed did not fit.
inline std::string draw(const serve::grammar::Grammar& grammar, const tokenizer::Tokenizer& tok,
                        const std::shared_ptr<const serve::grammar::TokenTrie>& trie, uint64_t seed, int max_tokens,
                        bool& stuck) {
  serve::grammar::Matcher m(grammar, trie);
  std::mt19937_64 rng(seed);
  std::string text;
  std::vector<int32_t> allowed;
  for (int i = 0; i < max_tokens; ++i) {
    m.allowed(allowed);
    if (m.may_end() && (allowed.empty() || rng() % 3 == 0)) return text;
    stuck = allowed.empty();
    if (stuck) return {};
    const std::string_view bytes = tok.bytes(allowed[rng() % allowed.size()]);
    stuck = !m.advance(bytes);
    if (stuck) return {};
    text += bytes;
  }
  return {};
}

}  // namespace dsf::test
