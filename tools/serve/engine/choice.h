#pragma once
// Choosing one token from a row of logits without anything that depends on the reply so far: greedy, or filters and the
// keyed draw.
//
// The draw at position p depends on (row, parameters, seed, p) and on nothing else. Everything after the f32 logits is
// float64. Candidates are ordered by (logit descending, id ascending). Pure arithmetic, any thread; a Chooser is
// scratch space for one caller at a time. Source: serving.md 5.2, 5.3, 5.5.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::serve {

struct ChoiceParams {
  double temperature = 1;  // 0: greedy
  double top_p = 1;        // (0, 1]
  double min_p = 0;        // [0, 1]
  int64_t top_k = 0;       // 0: off
  uint64_t seed = 0;
  uint64_t position = 0;  // absolute index of the token being chosen
};

// The 64-bit mixing function of the keyed draw.
uint64_t mix(uint64_t x);
// u in (0,1) of the Gumbel noise of one vocabulary id at one position.
double uniform(uint64_t seed, uint64_t position, uint64_t id);

class Chooser {
 public:
  // row: adjusted logits. candidates: ids in ascending order, reordered here; at least one has a logit above -infinity.
  int32_t choose(std::span<const double> row, std::vector<int32_t>& candidates, const ChoiceParams& params);
  // Of raw logits, every id a candidate. Errors: kBug "logits are not finite" (NaN, +inf, or nothing left to choose).
  Result<int32_t> choose(std::span<const float> logits, const ChoiceParams& params);

 private:
  size_t keep_by_top_k(int64_t top_k) const;
  size_t keep_by_top_p(size_t k, double top, const ChoiceParams& params);
  void sort_to(size_t n);

  std::span<const double> row_;
  std::vector<int32_t>* order_ = nullptr;  // its head is sorted
  size_t sorted_ = 0;
  std::vector<double> own_row_;
  std::vector<int32_t> own_candidates_;
};

// Errors: kBug when a logit is NaN or +infinity, or there is none.
Result<void> check_finite(std::span<const float> logits);

}  // namespace dsf::serve
