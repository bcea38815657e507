// A safetensors file: any bytes give a header or an error; a header that was accepted covers the file exactly and its views stay inside.
#include <cstdint>
#include <span>

#include "dsf/base/check.h"
#include "dsf/safetensors/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsf;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = safetensors::parse_header(bytes, size, "fuzz");
  if (!header) {
    DSF_CHECK(!header.error().what.empty(), "an error without words");
    return 0;
  }
  DSF_CHECK(header->data_offset <= size && header->data_bytes == size - header->data_offset, "data section inside the file");
  uint64_t at = 0;
  for (const safetensors::TensorInfo& t : header->tensors) {
    DSF_CHECK(t.begin == at && t.end >= t.begin && t.end <= header->data_bytes, "tensors follow each other inside the data section");
    const auto elements = tensor::element_count(t.shape);
    DSF_CHECK(elements && static_cast<uint64_t>(*elements) * tensor::dtype_size(t.dtype) == t.n_bytes(), "bytes of the shape");
    at = t.end;
    const safetensors::TensorView view{&t, bytes.subspan(header->data_offset + t.begin, t.n_bytes())};
    const auto floats = safetensors::to_f32(view);
    if (floats) DSF_CHECK(floats->size() == static_cast<size_t>(*elements), "one value per element");
    const auto integers = safetensors::to_i64(view);
    if (integers) DSF_CHECK(integers->size() == static_cast<size_t>(*elements), "one value per element");
  }
  DSF_CHECK(at == header->data_bytes, "nothing after the last tensor");
  return 0;
}
