// Random texts of schemas, for tests/oracle/grammar_oracle.py: reads one schema a line on stdin, writes a JSON list of
// texts for each. Arguments: tokenizer.json, number of texts.
#include <cstdio>
#include <iostream>

#include "draw.h"
#include "dsf/base/numeric.h"

using namespace dsf;

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
      bool stuck = false;
      std::string text = dsf::test::draw(*grammar, *tok, trie, static_cast<uint64_t>(i), 600, stuck);
      if (stuck) return std::fprintf(stderr, "%s: no token was left\n", line.c_str()), 1;
      if (!text.empty()) texts.push(std::move(text));
    }
    std::printf("%s\n", json::dump(texts).c_str());
  }
  return 0;
}
