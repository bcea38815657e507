#pragma once
// random_fill: device memory full of numbers that depend on the seed and the place alone. For weights that stand for others of the same size.
#include <cstddef>
#include <cstdint>

#include "dsf/base/result.h"

struct CUstream_st;

namespace dsf::serve::ops {

enum class FillType { kBits, kF32, kBf16, kF16 };
// kBits: n words of 32 random bits. Otherwise n values, uniform in [low, high), each with a random sign when `sign` is set.
struct RandomFillArgs {
  void* to = nullptr;
  size_t n = 0;
  FillType type = FillType::kBits;
  float low = 0, high = 1;
  bool sign = false;
  uint64_t seed = 0;
};
Result<void> random_fill_cuda(const RandomFillArgs& a, CUstream_st* stream);

}  // namespace dsf::serve::ops
