#include "encode.h"

#include <algorithm>
#include <cmath>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::made_checkpoint {
namespace {

using model::WeightKind;
using safetensors::TensorData;
using tensor::DType;

// Smallest e8m0 code whose scale brings `largest` into a type that reaches `limit`.
uint8_t scale_code(float largest, float limit) {
  if (largest == 0) return 127;
  int exponent = 0;
  const double mantissa = std::frexp(double{largest} / double{limit}, &exponent);  // in [0.5, 1)
  if (mantissa == 0.5) --exponent;                                                 // a power of two is its own ceiling
  return static_cast<uint8_t>(std::clamp(exponent + 127, 0, 254));
}

struct Block {
  int64_t rows, columns;
};

// Codes of a matrix [out, in] with one scale per block; code_of and value_of are the element type's.
template <class Encode, class Decode>
void encode_blocks(std::vector<float>& values, int64_t out, int64_t in, Block block, float limit,
                   std::vector<uint8_t>& codes, std::vector<std::byte>& scales, const Encode& code_of,
                   const Decode& value_of) {
  codes.resize(values.size());
  const auto at = [in](int64_t r, int64_t c) { return static_cast<size_t>(r * in + c); };
  for (int64_t r0 = 0; r0 < out; r0 += block.rows) {
    for (int64_t c0 = 0; c0 < in; c0 += block.columns) {
      const int64_t r1 = std::min(out, r0 + block.rows), c1 = std::min(in, c0 + block.columns);
      float largest = 0;
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) largest = std::max(largest, std::abs(values[at(r, c)]));
      const uint8_t code = scale_code(largest, limit);
      const float scale = tensor::e8m0_to_f32(code);
      scales.push_back(std::byte{code});
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          codes[at(r, c)] = code_of(values[at(r, c)] / scale);
          values[at(r, c)] = value_of(codes[at(r, c)]) * scale;
        }
      }
    }
  }
}

std::vector<std::byte> to_bytes(const std::vector<uint8_t>& codes) {
  std::vector<std::byte> bytes(codes.size());
  std::transform(codes.begin(), codes.end(), bytes.begin(), [](uint8_t c) { return std::byte{c}; });
  return bytes;
}

// Two codes a byte, the even column in the low half.
std::vector<std::byte> to_nibbles(const std::vector<uint8_t>& codes) {
  std::vector<std::byte> bytes(codes.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
  return bytes;
}

std::vector<TensorData> encode_fp8(const model::Weight& w, std::vector<float>& values, Block block) {
  const int64_t out = w.shape[0], in = w.shape[1];
  std::vector<uint8_t> codes;
  std::vector<std::byte> scales;
  encode_blocks(values, out, in, block, 448.0f, codes, scales, tensor::f32_to_e4m3, tensor::e4m3_to_f32);
  return {
      {w.name + ".weight", DType::kF8E4M3, w.shape, to_bytes(codes)},
      {w.name + ".scale", DType::kF8E8M0, {ceil_div(out, block.rows), ceil_div(in, block.columns)}, std::move(scales)}};
}

std::vector<TensorData> encode_fp4(const model::Weight& w, std::vector<float>& values) {
  const int64_t out = w.shape[0], in = w.shape[1];
  std::vector<uint8_t> codes;
  std::vector<std::byte> scales;
  encode_blocks(values, out, in, {1, 32}, 6.0f, codes, scales, tensor::f32_to_e2m1, tensor::e2m1_to_f32);
  return {{w.name + ".weight", DType::kI8, {out, in / 2}, to_nibbles(codes)},
          {w.name + ".scale", DType::kF8E8M0, {out, in / 32}, std::move(scales)}};
}

}  // namespace

std::vector<TensorData> encode(const model::Weight& weight, std::vector<float>& values) {
  switch (weight.kind) {
    case WeightKind::kLinearFp8:
      return encode_fp8(weight, values, {32, 32});
    case WeightKind::kTableFp8:
      return encode_fp8(weight, values, {1, 32});
    case WeightKind::kLinearFp4:
      return encode_fp4(weight, values);
    case WeightKind::kPlain:
    case WeightKind::kLinearBf16:
      break;
  }
  const DType dtype = weight.kind == WeightKind::kPlain ? weight.dtype : DType::kBF16;
  if (dtype == DType::kBF16) std::transform(values.begin(), values.end(), values.begin(), tensor::round_bf16);
  const std::string name = weight.kind == WeightKind::kPlain ? weight.name : weight.name + ".weight";
  return {{name, dtype, weight.shape, safetensors::from_f32(dtype, values)}};
}

}  // namespace dsf::made_checkpoint
