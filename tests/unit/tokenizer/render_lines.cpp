// For tests/oracle/chat_template_check.py: chat requests on stdin, one JSON object a line, to rendered prompts as JSON strings on stdout.
#include <iostream>
#include <string>

#include "dsf/json/json.h"
#include "dsf/tokenizer/prompt.h"

int main() {
  using namespace dsf;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = json::parse(line, "stdin", {.reject_duplicate_keys = false});
    if (!request) return 2;
    const auto thinking = tokenizer::thinking_of_request(*request, {}, tokenizer::EffortTable::release());
    if (!thinking) return 2;
    tokenizer::PromptOptions options{.thinking = *thinking};
    const json::Value* drop = request->find("drop_thinking");
    options.drop_thinking = drop == nullptr || *drop == json::Value(true);
    const auto prompt = tokenizer::render_prompt({request->find("messages"), request->find("tools"), request->find("response_format")}, options);
    std::cout << json::dump(prompt ? json::Value(prompt->text()) : json::Value()) << "\n";
    if (!prompt) std::cerr << prompt.error().line() << "\n";
  }
  return 0;
}
