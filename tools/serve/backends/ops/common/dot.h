#pragma once
// The one reduction of the oracle: a dot product in f32 whose order of additions depends on n alone.
//
// Sixteen running sums, then a fixed tree. The same row gives the same bits whatever batch, chunk or thread it is in,
// the compiler may use vector registers without reordering anything, and the rounding error grows with n/16 instead of
// n.
#include <cstdint>

namespace dsf::serve::ops {

inline float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  float sum[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) sum[j] += a[i + j] * b[i + j];
  }
  for (int64_t i = whole; i < n; ++i) sum[i - whole] += a[i] * b[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  return sum[0];
}

}  // namespace dsf::serve::ops
