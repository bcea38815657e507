#pragma once
// choose_token: the token after a row of logits: greedy, or filters and the keyed draw, by the rules of
// engine/choice.h, which is the oracle.
//
// Result per row: the id; kUndecided when the filters keep more than the kCandidates best (the caller takes the logits
// then); kNotFinite when a logit is NaN or +infinity or none is above -infinity. Exponentials, logarithms and sums are
// float64, as in the oracle, but not its library's: a choice can differ only where the oracle itself is decided by the
// last bits of a float64. Rows are independent. Source: serving.md 5.2, 5.3, 5.5.
#include <cstdint>

namespace dsf::serve::ops {

inline constexpr int32_t kUndecided = -1, kNotFinite = -2;
inline constexpr int64_t kCandidates = 1024;

struct TokenChoice {
  double temperature = 0, top_p = 1, min_p = 0;
  int64_t top_k = 0;
  uint64_t seed = 0, position = 0;
};

struct ChooseTokenArgs {
  const float* logits = nullptr;         // [n_rows, vocab]
  const TokenChoice* choices = nullptr;  // [n_rows]
  int32_t* ids = nullptr;                // [n_rows]
  int64_t n_rows = 0, vocab = 0;
};

}  // namespace dsf::serve::ops
