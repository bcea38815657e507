#pragma once
// Floats to the release's stored forms, and what the stored form decodes to. Source: model.md 2 and 9.
#include <cstdint>
#include <string>
#include <vector>

#include "dsf/model/weights.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::made_checkpoint {

// The stored tensors of one weight; values: [product of shape], row-major. Replaces values by what the stored form
// decodes to.
std::vector<safetensors::TensorData> encode(const model::Weight& weight, std::vector<float>& values);

}  // namespace dsf::made_checkpoint
