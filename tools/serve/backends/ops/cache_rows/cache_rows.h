#pragma once
// cache_rows: the cache formats as bytes. pack is fake_quant and storing in one: what unpack gives back is fake_quant's
// result, bit for bit.
//
//   kWindow      dim e4m3 values, then dim / 32 power-of-two scales (an f32 exponent each)      528 bytes for 512
//   kCompressed  dim e2m1 codes, two a byte, the even one low, then dim / 16 e4m3 scales        288 bytes for 512
//   kIndex       dim e2m1 codes, then dim / 32 power-of-two scales                              68 bytes for 128
//
// What a row is rounded up by is zero. A scale byte s of a power-of-two scale stands for the f32 with exponent field s.
// dim must be a multiple of 32. Any thread; rows are independent. Source: model.md sections 4.2 to 4.4 and 4.8, section
// 12 rows 7 to 9.
#include <cstdint>

#include "tools/serve/backends/ops/fake_quant/fake_quant.h"

namespace dsf::serve::ops {

constexpr int64_t packed_value_bytes(FakeQuant format, int64_t dim) {
  return format == FakeQuant::kWindow ? dim : dim / 2;
}
constexpr int64_t packed_scale_bytes(FakeQuant format, int64_t dim) {
  return format == FakeQuant::kCompressed ? dim / 16 : dim / 32;
}
// Rounded up to 8: rows are read eight bytes at a time. Index keys to 4: a word at a time.
constexpr int64_t packed_row_bytes(FakeQuant format, int64_t dim) {
  const int64_t bytes = packed_value_bytes(format, dim) + packed_scale_bytes(format, dim),
                unit = format == FakeQuant::kIndex ? 4 : 8;
  return (bytes + unit - 1) / unit * unit;
}

struct PackRowsArgs {
  const float* from = nullptr;     // [n_rows, dim]
  const int64_t* place = nullptr;  // [n_rows] row of `to`; -1: left out
  uint8_t* to = nullptr;           // [*, packed_row_bytes(format, dim)]
  int64_t n_rows = 0, dim = 0;
  FakeQuant format = FakeQuant::kWindow;
};
void pack_rows_ref(const PackRowsArgs& a);

// values: [dim]
void unpack_row_ref(FakeQuant format, const uint8_t* row, int64_t dim, float* values);

}  // namespace dsf::serve::ops
