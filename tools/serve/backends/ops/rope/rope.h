#pragma once
// rope: interleaved rotary embedding of the last rope_dim values of every head, forward or inverse, in place.
//
// Pair i is the values 2i, 2i+1 of the slice: (a, b) -> (a cos - b sin, a sin + b cos); the inverse negates sin. The
// angle is the f32 product f32(position) * freq[i]; its sine and cosine are those of that f32 number, correctly
// reduced. Any thread. Source: model.md section 8.
#include <cstdint>
#include <vector>

namespace dsf::serve::ops {

struct YarnParams {
  bool enabled = false;
  double factor = 1, beta_fast = 32, beta_slow = 1;
  int64_t original_length = 0;
};
// freq: [rope_dim / 2]. Evaluated in double and rounded to f32 once. Plain theta^(-2i/rope_dim) unless yarn.enabled.
std::vector<float> rope_frequencies(int64_t rope_dim, double theta, const YarnParams& yarn);

struct RopeArgs {
  float* x = nullptr;                  // [n_rows, n_heads, head_dim], contiguous, rotated in place
  const int64_t* positions = nullptr;  // [n_rows]
  const float* freq = nullptr;         // [rope_dim / 2]
  int64_t n_rows = 0, n_heads = 1, head_dim = 0, rope_dim = 0;
  bool inverse = false;
};
void rope_ref(const RopeArgs& a);

}  // namespace dsf::serve::ops
