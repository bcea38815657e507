#include "tools/serve/engine/weight_reader.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/exl3/decode.h"
#include "dsf/exl3/matrix.h"
#include "tools/serve/backends/ops/linear/linear.h"

namespace dsf::serve {
namespace {

constexpr int64_t kBlock = 32;

Unexpected wrong_shape(const std::string& name, const tensor::Shape& got, const tensor::Shape& want) {
  return fail(Code::kContent, name,
              "shape " + tensor::shape_text(got) + ", the configuration needs " + tensor::shape_text(want),
              "use the config.json that belongs to this checkpoint");
}

Result<safetensors::TensorView> shaped(const safetensors::Checkpoint& c, const std::string& name,
                                       const tensor::Shape& want) {
  DSF_TRY(const safetensors::TensorView view, c.tensor(name));
  if (view.shape() != want) return wrong_shape(name, view.shape(), want);
  return view;
}

Result<void> read_quantised(const safetensors::Checkpoint& c, const std::string& name,
                            const safetensors::TensorView& weight, Linear& l) {
  const bool fp8 = weight.dtype() == tensor::DType::kF8E4M3;
  const tensor::Shape scale_shape = {fp8 ? ceil_div(l.out, kBlock) : l.out, ceil_div(l.in, kBlock)};
  DSF_TRY(const safetensors::TensorView scale, shaped(c, name + ".scale", scale_shape));
  if (scale.dtype() != tensor::DType::kF8E8M0) return fail(Code::kContent, name + ".scale", "is not F8_E8M0");
  if (fp8) {
    ops::dequantise_fp8_blocks(weight.bytes, scale.bytes, l.out, l.in, l.w);
  } else {
    ops::dequantise_fp4_rows(weight.bytes, scale.bytes, l.out, l.in, l.w);
  }
  return {};
}

}  // namespace

Result<Vec> WeightReader::vector(const std::string& name, int64_t n) const {
  DSF_TRY(const safetensors::TensorView view, checkpoint_.tensor(name));
  const auto count = tensor::element_count(view.shape());
  if (!count || *count != n) return wrong_shape(name, view.shape(), {n});
  return safetensors::to_f32(view);
}

Result<Linear> WeightReader::linear(const std::string& name, int64_t out, int64_t in) const {
  Linear l{.w = Vec(static_cast<size_t>(out * in)), .out = out, .in = in};
  if (exl3::is_packed(checkpoint_, name)) {
    DSF_TRY(const exl3::PackedMatrix packed, exl3::open(checkpoint_, name, out, in));
    exl3::dequantise(packed, l.w);
    return l;
  }
  const std::string stored = name + ".weight";
  DSF_TRY(const safetensors::TensorView weight, checkpoint_.tensor(stored));
  if (weight.dtype() == tensor::DType::kI8) {
    if (in % kBlock != 0) return fail(Code::kContent, stored, "FP4 rows must be multiples of 32 inputs");
    if (weight.shape() != tensor::Shape{out, in / 2}) return wrong_shape(stored, weight.shape(), {out, in / 2});
    DSF_OK(read_quantised(checkpoint_, name, weight, l));
    return l;
  }
  if (weight.shape() != tensor::Shape{out, in}) return wrong_shape(stored, weight.shape(), {out, in});
  if (weight.dtype() == tensor::DType::kF8E4M3) {  // means nothing without its scale, which must be there
    DSF_OK(read_quantised(checkpoint_, name, weight, l));
    return l;
  }
  if (checkpoint_.contains(name + ".scale"))
    return fail(Code::kContent, stored, "has a scale but is neither F8_E4M3 nor I8");
  DSF_TRY(l.w, safetensors::to_f32(weight));
  return l;
}

Result<Linear> WeightReader::outputs(const std::string& name, int64_t out, int64_t in, model::Range part) const {
  if (part.size() == out) return linear(name, out, in);
  Linear l{.w = Vec(static_cast<size_t>(part.size() * in)), .out = part.size(), .in = in};
  if (part.size() == 0) return l;
  if (exl3::is_packed(checkpoint_, name)) {
    DSF_TRY(const exl3::PackedMatrix packed, exl3::open(checkpoint_, name, out, in));
    DSF_TRY(const exl3::Matrix own, exl3::slice_columns(packed, part.begin, part.end));
    exl3::dequantise(own.view(), l.w);
    return l;
  }
  DSF_TRY(const Linear whole, linear(name, out, in));
  std::copy_n(whole.w.begin() + part.begin * in, part.size() * in, l.w.begin());
  return l;
}

Result<Linear> WeightReader::inputs(const std::string& name, int64_t out, int64_t in, model::Range part) const {
  if (part.size() == in) return linear(name, out, in);
  Linear l{.w = Vec(static_cast<size_t>(out * part.size())), .out = out, .in = part.size()};
  if (part.size() == 0) return l;
  if (exl3::is_packed(checkpoint_, name)) {
    DSF_TRY(const exl3::PackedMatrix packed, exl3::open(checkpoint_, name, out, in));
    DSF_TRY(const exl3::Matrix own, exl3::slice_rows(packed, part.begin, part.end));
    exl3::dequantise(own.view(), l.w);
    return l;
  }
  DSF_TRY(const Linear whole, linear(name, out, in));
  for (int64_t o = 0; o < out; ++o)
    std::copy_n(whole.w.begin() + o * in + part.begin, part.size(), l.w.begin() + o * part.size());
  return l;
}

Result<std::vector<Linear>> WeightReader::grouped(const std::string& name, int64_t groups, int64_t out, int64_t in,
                                                  model::Range part) const {
  std::vector<Linear> parts;
  if (exl3::is_packed(checkpoint_, name + ".slice.0")) {
    for (int64_t g = part.begin; g < part.end; ++g) {
      DSF_TRY(Linear slice, linear(name + ".slice." + std::to_string(g), out, in));
      parts.push_back(std::move(slice));
    }
    return parts;
  }
  DSF_TRY(const Linear whole, linear(name, groups * out, in));
  for (int64_t g = part.begin; g < part.end; ++g) {
    const auto first = whole.w.begin() + static_cast<std::ptrdiff_t>(g * out * in);
    parts.push_back({.w = Vec(first, first + static_cast<std::ptrdiff_t>(out * in)), .out = out, .in = in});
  }
  return parts;
}

}  // namespace dsf::serve
