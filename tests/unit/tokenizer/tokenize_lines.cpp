// For tests/oracle/tokenizer_compare.py: JSON strings on stdin, one a line, to JSON id arrays on stdout.
#include <iostream>
#include <string>

#include "dsf/json/json.h"
#include "dsf/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using namespace dsf;
  if (argc != 3) {
    std::cerr << "usage: tokenize_lines TOKENIZER_JSON off|parse\n";
    return 2;
  }
  const auto tok = tokenizer::Tokenizer::load(argv[1]);
  if (!tok) {
    std::cerr << tok.error().line() << "\n";
    return static_cast<int>(tok.error().code);
  }
  const auto specials = std::string_view(argv[2]) == "parse" ? tokenizer::Specials::kParse : tokenizer::Specials::kOff;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto text = json::parse(line, "stdin");
    if (!text || !text->is_string()) return 2;
    json::Value ids = json::Value::array();
    for (const tokenizer::TokenId id : tok->encode(text->as_string(), specials)) ids.push(id);
    std::cout << json::dump(ids) << "\n";
  }
  return 0;
}
