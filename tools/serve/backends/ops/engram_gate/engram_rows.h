#pragma once
// engram_rows: packed Engram records to the values that wkv multiplies.
//
//   values[r, c * head_dim + j] = e4m3(record[j]) * scale(record[head_dim + j / 32])
//
// A record is head_dim e4m3 bytes, then head_dim / 32 scale bytes, each an f32 exponent field. The oracle is
// engram::dequantize_row. Any thread; records are independent. Source: engram.md sections 5.1, 5.2, 6.1.
#include <cstdint>

namespace dsf::serve::ops {

struct EngramRowsArgs {
  const uint8_t* records = nullptr;  // [n_rows * columns, head_dim + head_dim / 32]
  float* values = nullptr;           // [n_rows * columns, head_dim]
  int64_t n_records = 0, head_dim = 0;
};

}  // namespace dsf::serve::ops
