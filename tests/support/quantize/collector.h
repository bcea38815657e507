#pragma once
// Second moments of what every packed matrix of a model multiplies, gathered from the CPU engine.
//
// Borrows the weights, which must stay where they are while it observes; one thread. Memory: 8 bytes times the square
// of the inputs for each matrix, less those that share theirs (w1 and w3; everything that reads the normed stream of a
// layer; both readers of the query's low rank).
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dsf/exl3/hessian.h"
#include "tools/serve/backends/ops/common/input_observer.h"
#include "tools/serve/engine/weights.h"

namespace dsf::quantize {

// Which matrix's inputs are those of packed matrix `name`: another one's name where both read the same vector.
std::string input_key(std::string_view name);

class Collector final : public serve::ops::InputObserver {
 public:
  explicit Collector(const serve::ModelWeights& weights);
  void inputs(const float* w, const float* x, int64_t x_stride, int64_t n_rows, int64_t in) override;

  // For quantising packed matrix `name`. Experts see only the tokens that were routed to them, so theirs are propped
  // up:
  //   w1, w3  count as many rows of the layer's mean (what its shared expert saw: every token) as they have inputs
  //   w2      a quarter as many rows of uncorrelated inputs, for no other expert shares its basis
  // An expert that saw no token gets the layer's moments for w1 and w3 and none for w2.
  exl3::Hessian moments(std::string_view name) const;
  // Rows that the matrix itself has seen.
  double n_rows(std::string_view name) const;

 private:
  void watch(const serve::Linear& l, const std::string& name);
  void watch_block(const serve::LayerWeights& w, const std::string& prefix);
  void watch_experts(const serve::MoeWeights& w, const std::string& prefix);

  std::map<const float*, exl3::Hessian*> by_place_;
  std::map<std::string, exl3::Hessian, std::less<>> by_name_;  // by input_key()
};

}  // namespace dsf::quantize
