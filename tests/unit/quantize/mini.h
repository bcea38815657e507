#pragma once
// A native folder of the least model with every kind of packed matrix but Engram's: one layer, one draft block, 0.65
// million random weights, in BF16.
#include <filesystem>

#include "dsf/model/config.h"

namespace dsf::quantize_test {

model::Config mini_config();
void write_mini(const std::filesystem::path& dir);

}  // namespace dsf::quantize_test
