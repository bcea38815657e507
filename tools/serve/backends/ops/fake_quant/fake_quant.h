#pragma once
// fake_quant: the cache formats, applied as quantise-then-dequantise in place. They are part of the trained model.
//
//   kWindow      FQ8   blocks of 32, e4m3 values, power-of-two scale      window rows of every layer
//   kCompressed  FQ4k  blocks of 16, e2m1 values, e4m3 scale              compressed rows
//   kIndex       FQ4i  blocks of 32, e2m1 values, power-of-two scale      index queries and keys
//
// Every result is exact in bf16. n must be a multiple of the block. Any thread; blocks are independent.
// Source: model.md sections 4.2, 4.3, 4.4, 9.
#include <cstdint>

namespace dsf::serve::ops {

enum class FakeQuant { kWindow, kCompressed, kIndex };

struct FakeQuantArgs {
  float* x = nullptr;  // [n], contiguous
  int64_t n = 0;
  FakeQuant format = FakeQuant::kWindow;
};
void fake_quant_ref(const FakeQuantArgs& a);

// 2^ceil(log2(f)) for a positive normal f, by its exponent bits.
float ceil_power_of_two(float f);

}  // namespace dsf::serve::ops
