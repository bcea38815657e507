#pragma once
// The opening bytes of a safetensors file that somebody else fills: for writers that stream the data section.
#include <span>
#include <string>
#include <utility>

#include "dsf/safetensors/safetensors.h"

namespace dsf::safetensors {

// Length word and JSON, padded with spaces to a multiple of 8. tensors: in file order with begin and end set.
std::string header_bytes(std::span<const TensorInfo> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace dsf::safetensors
