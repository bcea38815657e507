#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/tensor/dtype.h"
#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/linear/linear.h"

namespace dsf::serve::ops {
namespace {

constexpr int64_t kBlock = 32;

uint8_t byte_at(std::span<const std::byte> s, int64_t i) { return std::to_integer<uint8_t>(s[static_cast<size_t>(i)]); }

}  // namespace

void linear_ref(const LinearArgs& a) {
  // Outputs outside, rows inside: each weight row is read from memory once per call.
  for (int64_t o = 0; o < a.out; ++o) {
    for (int64_t r = 0; r < a.n_rows; ++r) a.y[r * a.y_stride + o] = dot(a.x + r * a.x_stride, a.w + o * a.in, a.in);
  }
}

void dequantise_fp8_blocks(std::span<const std::byte> weight, std::span<const std::byte> scale, int64_t out, int64_t in,
                           std::span<float> w) {
  const int64_t blocks = ceil_div(in, kBlock);
  DSF_CHECK(std::ssize(weight) == out * in && std::ssize(w) == out * in, "weight size");
  DSF_CHECK(std::ssize(scale) == ceil_div(out, kBlock) * blocks, "scale size");
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const float s = tensor::e8m0_to_f32(byte_at(scale, (o / kBlock) * blocks + i / kBlock));
      w[static_cast<size_t>(o * in + i)] = tensor::e4m3_to_f32(byte_at(weight, o * in + i)) * s;
    }
  }
}

void dequantise_fp4_rows(std::span<const std::byte> weight, std::span<const std::byte> scale, int64_t out, int64_t in,
                         std::span<float> w) {
  DSF_CHECK(in % kBlock == 0, "FP4 rows come in blocks of 32");
  DSF_CHECK(std::ssize(weight) == out * in / 2 && std::ssize(w) == out * in, "weight size");
  DSF_CHECK(std::ssize(scale) == out * in / kBlock, "scale size");
  for (int64_t k = 0; k < out * in; ++k) {
    const uint8_t pair = byte_at(weight, k / 2);
    const auto code = static_cast<uint8_t>(k % 2 == 0 ? pair & 15 : pair >> 4);
    // +0.0f: code 8 is -0, which the format defines as 0.
    w[static_cast<size_t>(k)] = tensor::e2m1_to_f32(code) * tensor::e8m0_to_f32(byte_at(scale, k / kBlock)) + 0.0f;
  }
}

}  // namespace dsf::serve::ops
