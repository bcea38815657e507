#pragma once
// linear: y = x W^T, and the stored weight formats turned into the f32 matrix that it takes.
//
// Row-major everywhere, matrices are [out, in], nothing has a bias. Spans and pointers are borrowed for the call. Any
// thread; calls on disjoint outputs may run at once. Sizes that do not fit are bugs (DSF_CHECK). Source: model.md
// sections 0, 2, 9.
#include <cstddef>
#include <cstdint>
#include <span>

namespace dsf::serve::ops {

struct LinearArgs {
  const float* x = nullptr;  // [n_rows, in], row stride x_stride
  const float* w = nullptr;  // [out, in], contiguous
  float* y = nullptr;        // [n_rows, out], row stride y_stride
  int64_t n_rows = 0, in = 0, out = 0;
  int64_t x_stride = 0, y_stride = 0;
};
void linear_ref(const LinearArgs& a);

// weight: E4M3 [out, in]; scale: E8M0 [ceil(out/32), ceil(in/32)]; w: [out, in]. The exact product, no rounding.
void dequantise_fp8_blocks(std::span<const std::byte> weight, std::span<const std::byte> scale, int64_t out, int64_t in,
                           std::span<float> w);
// weight: two E2M1 per byte [out, in/2], the low nibble is the even column; scale: E8M0 [out, in/32]; w: [out, in]. in
// % 32 == 0.
void dequantise_fp4_rows(std::span<const std::byte> weight, std::span<const std::byte> scale, int64_t out, int64_t in,
                         std::span<float> w);

}  // namespace dsf::serve::ops
