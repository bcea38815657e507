#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::safetensors {
namespace {

template <class Stored, class Out, class Convert>
std::vector<Out> map_elements(const TensorView& view, Convert convert) {
  std::vector<Out> out(view.bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < out.size(); ++i) out[i] = convert(load_le<Stored>(view.bytes.data() + i * sizeof(Stored)));
  return out;
}

Unexpected wrong_type(const TensorView& view, std::string_view wanted) {
  return fail(Code::kContent, view.info->name, "holds " + std::string(tensor::dtype_name(view.dtype())) + ", " + std::string(wanted) + " expected", {}, "dtype");
}

template <class Stored>
std::vector<int64_t> integers(const TensorView& view) {
  return map_elements<Stored, int64_t>(view, [](Stored v) { return static_cast<int64_t>(v); });
}

}  // namespace

Result<std::vector<float>> to_f32(const TensorView& view) {
  using tensor::DType;
  switch (view.dtype()) {
    case DType::kF32: return map_elements<float, float>(view, [](float v) { return v; });
    case DType::kF64: return map_elements<double, float>(view, [](double v) { return static_cast<float>(v); });
    case DType::kBF16: return map_elements<uint16_t, float>(view, tensor::bf16_to_f32);
    case DType::kF16: return map_elements<uint16_t, float>(view, tensor::f16_to_f32);
    case DType::kF8E4M3: return map_elements<uint8_t, float>(view, tensor::e4m3_to_f32);
    case DType::kF8E5M2: return map_elements<uint8_t, float>(view, tensor::e5m2_to_f32);
    case DType::kF8E8M0: return map_elements<uint8_t, float>(view, tensor::e8m0_to_f32);
    default: return wrong_type(view, "a floating-point type");
  }
}

std::vector<std::byte> from_f32(tensor::DType dtype, std::span<const float> values) {
  using tensor::DType;
  const size_t size = tensor::dtype_size(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* to = bytes.data() + i * size;
    switch (dtype) {
      case DType::kF32: store_le(to, values[i]); break;
      case DType::kBF16: store_le(to, tensor::f32_to_bf16(values[i])); break;
      case DType::kF16: store_le(to, tensor::f32_to_f16(values[i])); break;
      default: DSF_CHECK(false, "floats are written as F32, BF16 or F16");
    }
  }
  return bytes;
}

Result<std::vector<int64_t>> to_i64(const TensorView& view) {
  using tensor::DType;
  switch (view.dtype()) {
    case DType::kI8: return integers<int8_t>(view);
    case DType::kBool:
    case DType::kU8: return integers<uint8_t>(view);
    case DType::kI16: return integers<int16_t>(view);
    case DType::kU16: return integers<uint16_t>(view);
    case DType::kI32: return integers<int32_t>(view);
    case DType::kU32: return integers<uint32_t>(view);
    case DType::kI64: return integers<int64_t>(view);
    case DType::kU64: return integers<uint64_t>(view);
    default: return wrong_type(view, "an integer type");
  }
}

}  // namespace dsf::safetensors
