#include <algorithm>
#include <bit>
#include <cmath>

#include "dsf/base/check.h"
#include "dsf/tensor/dtype.h"
#include "tools/serve/backends/ops/fake_quant/fake_quant.h"

namespace dsf::serve::ops {
namespace {

constexpr float kMaxE4m3 = 448.0f, kMaxE2m1 = 6.0f;

float block_max(const float* x, int64_t n) {
  float amax = 0;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

float to_e4m3(float v) { return tensor::e4m3_to_f32(tensor::f32_to_e4m3(std::clamp(v, -kMaxE4m3, kMaxE4m3))); }
float to_e2m1(float v) { return tensor::e2m1_to_f32(tensor::f32_to_e2m1(std::clamp(v, -kMaxE2m1, kMaxE2m1))); }

}  // namespace

float ceil_power_of_two(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u);
  return std::bit_cast<float>(exponent << 23);
}

void fake_quant_ref(const FakeQuantArgs& a) {
  const int64_t block = a.format == FakeQuant::kCompressed ? 16 : 32;
  DSF_CHECK(a.n % block == 0, "fake quantisation works on whole blocks");
  for (float* x = a.x; x < a.x + a.n; x += block) {
    const float amax = block_max(x, block);
    float scale = 0;
    switch (a.format) {
      case FakeQuant::kWindow:
        scale = ceil_power_of_two(std::max(amax, 1e-4f) * (1.0f / kMaxE4m3));
        break;
      case FakeQuant::kCompressed:
        scale = to_e4m3(std::max(amax, 6.0f * 0x1p-9f) / kMaxE2m1);
        break;
      case FakeQuant::kIndex:
        scale = ceil_power_of_two(std::max(amax, 6.0f * 0x1p-126f) * (1.0f / kMaxE2m1));
        break;
    }
    for (int64_t i = 0; i < block; ++i) {
      const float v = x[i] / scale;
      x[i] = tensor::round_bf16((a.format == FakeQuant::kWindow ? to_e4m3(v) : to_e2m1(v)) * scale);
    }
  }
}

}  // namespace dsf::serve::ops
