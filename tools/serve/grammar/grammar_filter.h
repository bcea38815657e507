#pragma once
// A grammar as the scheduler's token filter: once it is in force, the reply is a text of the grammar and then the end
// of the turn.
//
// With an opening, the reply may instead begin with that text (the opening of a tool call block); then nothing is
// limited any more. One per request, on the engine's thread. Source: serving.md 4.5, 4.6.
#include <memory>
#include <string>

#include "dsf/tokenizer/tokenizer.h"
#include "tools/serve/grammar/grammar.h"
#include "tools/serve/grammar/matcher.h"
#include "tools/serve/scheduler/sampler.h"

namespace dsf::serve::grammar {

class GrammarFilter final : public TokenFilter {
 public:
  GrammarFilter(tokenizer::Tokenizer tokenizer, Grammar grammar, std::shared_ptr<const TokenTrie> trie, int32_t eos,
                std::string opening = {});

  // Text that stands already (a continued message). False when nothing of the grammar begins with it.
  bool prefill(std::string_view text);
  bool allowed(std::vector<int32_t>& out) override;
  void commit(int32_t id) override;

 private:
  void add_opening(std::vector<int32_t>& out) const;

  tokenizer::Tokenizer tokenizer_;
  Matcher matcher_;
  std::shared_ptr<const TokenTrie> trie_;
  const int32_t eos_;
  std::string opening_;      // what is left of it; empty once the reply has begun as a text of the grammar
  bool free_ = false;        // the opening is complete
  bool by_opening_ = false;  // the reply has begun with it
};

}  // namespace dsf::serve::grammar
