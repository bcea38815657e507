// Random texts of schemas, for tests/oracle/grammar_oracle.py: reads one schema a line on stdin, writes a JSON list of
// texts for each. Arguments: tokenizer.json, number of texts.
#include <cstdio>
#include <iostream>
#include <random>

#include "dsf/base/numeric.h"
#include "tools/serve/grammar/grammar.h"
#include "tools/serve/grammar/matcher.h"

using namespace dsf;

namespace {

// Empty when it did not end.
std::string draw(const serve::grammar::Grammar& grammar, const tokenizer::Tokenizer& tok,
                 const std::shared_ptr<const serve::grammar::TokenTrie>& trie, uint64_t seed) {
  serve::grammar::Matcher m(grammar, trie);
  std::mt19937_64 rng(seed);
  std::string text;
  std::vector<int32_t> allowed;
  for (int i = 0; i < 600; ++i) {
    m.allowed(allowed);
    if (m.may_end() && (allowed.empty() || rng() % 3 == 0)) return text;
    const int32_t id = allowed[rng() % allowed.size()];
    m.advance(tok.bytes(id));
    text += tok.bytes(id);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto tok = tokenizer::Tokenizer::load(argc > 1 ? argv[1] : "tokenizer.json");
  if (!tok) return std::fprintf(stderr, "%s\n", tok.error().line().c_str()), 2;
  const int64_t n = argc > 2 ? parse_i64(argv[2]).value_or(10) : 10;
  const auto trie =
      std::make_shared<const serve::grammar::TokenTrie>(serve::grammar::TokenTrie::make(*tok, tok->id_limit()));
  for (std::string line; std::getline(std::cin, line);) {
    const auto schema = json::parse(line, "schema");
    if (!schema) return std::fprintf(stderr, "%s\n", schema.error().line().c_str()), 2;
    const auto grammar = serve::grammar::of_schema(*schema, "schema");
    if (!grammar) return std::fprintf(stderr, "%s: %s\n", line.c_str(), grammar.error().line().c_str()), 2;
    json::Value texts = json::Value::array();
    for (int64_t i = 0; i < n; ++i) {
      if (std::string text = draw(*grammar, *tok, trie, static_cast<uint64_t>(i)); !text.empty())
        texts.push(std::move(text));
    }
    std::printf("%s\n", json::dump(texts).c_str());
  }
  return 0;
}
