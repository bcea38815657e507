#include <array>
#include <bit>
#include <cmath>

#include "dsf/base/check.h"
#include "dsf/engram/rows.h"
#include "dsf/tensor/dtype.h"

namespace dsf::engram {
namespace {

const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t{};
    for (size_t i = 0; i < 256; ++i) t[i] = tensor::e4m3_to_f32(static_cast<uint8_t>(i));
    return t;
  }();
  return table;
}

template <class Store>
void for_each_value(std::span<const std::byte> record, size_t n, Store store) {
  DSF_CHECK(n % 32 == 0 && record.size() == n + n / 32, "record of head_dim + head_dim/32 bytes");
  const auto& values = e4m3_table();
  for (size_t block = 0; block < n / 32; ++block) {
    const auto scale = std::bit_cast<float>(uint32_t{std::to_integer<uint8_t>(record[n + block])} << 23);
    for (size_t j = block * 32; j < block * 32 + 32; ++j) store(j, values[std::to_integer<uint8_t>(record[j])] * scale);
  }
}

}  // namespace

void dequantize_row(std::span<const std::byte> record, std::span<float> out) {
  for_each_value(record, out.size(), [&](size_t j, float v) { out[j] = v; });
}

void dequantize_row_bf16(std::span<const std::byte> record, std::span<uint16_t> out) {
  for_each_value(record, out.size(), [&](size_t j, float v) { out[j] = std::isnan(v) ? uint16_t{0xFFFF} : tensor::f32_to_bf16(v); });
}

Result<void> RowSource::gather(size_t layer_index, std::span<const int64_t> rows, std::span<float> out) const {
  const auto head_dim = static_cast<size_t>(layout_.head_dim()), row_bytes = static_cast<size_t>(layout_.row_bytes());
  DSF_CHECK(out.size() == rows.size() * head_dim, "out: [rows, head_dim]");
  std::vector<std::byte> records(rows.size() * row_bytes);
  DSF_OK(read(layer_index, rows, records));
  for (size_t i = 0; i < rows.size(); ++i)
    dequantize_row(std::span(records).subspan(i * row_bytes, row_bytes), out.subspan(i * head_dim, head_dim));
  return {};
}

}  // namespace dsf::engram
