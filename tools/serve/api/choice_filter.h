#pragma once
// Limits the reply's next tokens to spell one of a few fixed texts, for instance the opening of a call of a declared
// tool.
#include <string>
#include <vector>

#include "dsf/tokenizer/tokenizer.h"
#include "tools/serve/scheduler/sampler.h"

namespace dsf::serve {

class ChoiceFilter final : public TokenFilter {
 public:
  // choices: none the beginning of another, so that a finished one cannot go on. Ids at or beyond vocab_size are never
  // offered.
  ChoiceFilter(tokenizer::Tokenizer tokenizer, int64_t vocab_size, std::vector<std::string> choices)
      : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size), left_(std::move(choices)) {}

  bool allowed(std::vector<int32_t>& out) override;
  void commit(int32_t id) override;

 private:
  tokenizer::Tokenizer tokenizer_;
  int64_t vocab_size_;
  std::vector<std::string>
      left_;  // what is still to be spelled of every choice that agrees so far; empty once one is complete
};

}  // namespace dsf::serve
