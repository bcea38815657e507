#pragma once
// The random values of the made model.
#include <cstdint>
#include <string_view>
#include <vector>

#include "dsf/model/weights.h"

namespace dsf::made_checkpoint {

// Values of one weight, [product of shape] row-major. Each weight has a stream of its own, from the seed and its name:
// a change of one tensor leaves all others alone. The magnitudes keep streams near 1 and logits within about +-10
// (model.md 11).
std::vector<float> random_values(const model::Weight& weight, const model::Config& config, uint64_t seed);

}  // namespace dsf::made_checkpoint
