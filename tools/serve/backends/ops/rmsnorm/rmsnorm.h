#pragma once
// rmsnorm: y = w * (x / sqrt(mean(x^2) + eps)) per row.
//
// eps is 1e-20, a normal f32: an all-zero row gives zeros. x and y may be the same buffer. Any thread; rows are
// independent. Source: model.md section 7.
#include <cstdint>

namespace dsf::serve::ops {

struct RmsNormArgs {
  const float* x = nullptr;  // [n_rows, dim], contiguous
  const float* w = nullptr;  // [dim]
  float* y = nullptr;        // [n_rows, dim], contiguous
  int64_t n_rows = 0, dim = 0;
  float eps = 1e-20f;
};
void rmsnorm_ref(const RmsNormArgs& a);

}  // namespace dsf::serve::ops
