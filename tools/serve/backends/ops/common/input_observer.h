#pragma once
// InputObserver: a look at what every matrix multiplies, for calibrating a quantizer on the CPU backend.
//
// Whoever applies a matrix tells the observer first, where there is one. Matrices are known by where their weights lie.
// Calls come from one thread, in the order of the rows; pointers are borrowed for the call.
#include <cstdint>

namespace dsf::serve::ops {

class InputObserver {
 public:
  virtual ~InputObserver() = default;
  // x: [n_rows, in], rows x_stride floats apart, about to be multiplied by the matrix [out, in] at w.
  virtual void inputs(const float* w, const float* x, int64_t x_stride, int64_t n_rows, int64_t in) = 0;
};

}  // namespace dsf::serve::ops
