#pragma once
// Choosing a token from a row of logits: filters, penalties and the keyed draw. Pure arithmetic, no clock, no random
// state.
//
// The draw at position p depends on (logits at p, parameters, seed, p) and on nothing else, so neither batch mates nor
// chunking nor drafts can change a reply. One Sampler per request, one thread at a time. All arithmetic after the f32
// logits is float64.
//
// Order of operations (fixed; serving.md 5.2): logit_bias, repetition penalty, frequency and presence penalty, masks
// (min_tokens, allowed tokens), greedy exit, temperature, top_k, top_p, min_p, draw. Source: serving.md 5.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dsf/base/result.h"
#include "tools/serve/engine/choice.h"

namespace dsf::serve {

// The deterministic default seed of a prompt: 63 bits of SHA-256 over its ids and a salt.
uint64_t seed_for(std::span<const int32_t> prompt, uint64_t salt);
// The seed of one of a request's n choices; choice 0 has the request's own.
uint64_t seed_of_choice(uint64_t seed, uint64_t choice);

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  double top_p = 0.95;       // (0, 1]
  double min_p = 0;          // [0, 1]
  int64_t top_k = 0;         // 0: off
  double presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<std::pair<int32_t, double>> logit_bias;
  uint64_t seed = 0;
  int top_logprobs = -1;  // -1: no log-probabilities, 0: of the chosen token only
};

struct TokenLogprob {
  int32_t id = -1;
  double logprob = 0;
};

struct Choice {
  int32_t id = -1;
  double logprob = 0;             // log-softmax of the raw logits; 0 unless asked for
  std::vector<TokenLogprob> top;  // most likely first
};

// Which tokens may come next, as a function of the tokens committed so far (forced call openings, grammars).
class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  // Puts the ids that may come next into out (ascending), or returns false when every id may.
  virtual bool allowed(std::vector<int32_t>& out) = 0;
  virtual void commit(int32_t id) = 0;
};

class Sampler {
 public:
  Sampler(SamplingParams params, std::span<const int32_t> prompt);

  // logits: [vocab_size] f32. position: absolute index of the token being produced. masked: ids that must not be
  // chosen. allowed: when given, the only ids that may be. Errors: kBug "logits are not finite" (NaN, +inf, or nothing
  // left to choose).
  Result<Choice> pick(std::span<const float> logits, uint64_t position, std::span<const int32_t> masked = {},
                      const std::vector<int32_t>* allowed = nullptr);
  // Whether the choice depends on the raw logits, choice_params() and nothing else: then the engine may make it.
  bool plain() const { return !rewrites_logits() && params_.top_logprobs < 0; }
  ChoiceParams choice_params(uint64_t position) const;
  // The token became part of the reply: it counts for the penalties.
  void commit(int32_t id);

 private:
  bool rewrites_logits() const;
  void apply_bias_and_penalties();
  void restrict_to(const std::vector<int32_t>& allowed);

  SamplingParams params_;
  std::unordered_map<int32_t, int64_t>
      seen_;                    // id -> times generated; 0 for ids of the prompt (with a repetition penalty only)
  std::vector<double> row_;     // adjusted logits of the current row
  std::vector<int32_t> order_;  // candidates
  Chooser chooser_;
};

// Log-softmax of the raw row at `chosen`, and of its `n_top` most likely ids.
Choice describe(std::span<const float> logits, int32_t chosen, int n_top);

}  // namespace dsf::serve
