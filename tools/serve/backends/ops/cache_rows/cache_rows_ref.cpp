#include <algorithm>
#include <bit>
#include <cmath>

#include "dsf/base/check.h"
#include "dsf/tensor/dtype.h"
#include "tools/serve/backends/ops/cache_rows/cache_rows.h"

namespace dsf::serve::ops {
namespace {

int64_t block_of(FakeQuant format) { return format == FakeQuant::kCompressed ? 16 : 32; }

// The scale of a block, and its byte.
float scale_of(FakeQuant format, const float* x, uint8_t& byte) {
  float amax = 0;
  for (int64_t i = 0; i < block_of(format); ++i) amax = std::max(amax, std::fabs(x[i]));
  if (format == FakeQuant::kCompressed) {
    byte = tensor::f32_to_e4m3(std::max(amax, 6.0f * 0x1p-9f) / 6.0f);
    return tensor::e4m3_to_f32(byte);
  }
  const float scale = format == FakeQuant::kWindow
                          ? ceil_power_of_two(std::max(amax, 1e-4f) * (1.0f / 448.0f))
                          : ceil_power_of_two(std::max(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f));
  byte = static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
  return scale;
}

}  // namespace

void pack_rows_ref(const PackRowsArgs& a) {
  DSF_CHECK(a.dim % 32 == 0, "rows are whole blocks");
  const int64_t bytes = packed_row_bytes(a.format, a.dim), block = block_of(a.format);
  for (int64_t r = 0; r < a.n_rows; ++r) {
    if (a.place[r] < 0) continue;
    const float* x = a.from + r * a.dim;
    uint8_t* const to = a.to + a.place[r] * bytes;
    uint8_t* const scales = to + packed_value_bytes(a.format, a.dim);
    std::fill_n(to, bytes, uint8_t{0});
    for (int64_t i = 0; i < a.dim; ++i) {
      const float v = x[i] / scale_of(a.format, x + i / block * block, scales[i / block]);
      if (a.format == FakeQuant::kWindow) {
        to[i] = tensor::f32_to_e4m3(std::clamp(v, -448.0f, 448.0f));
      } else {
        to[i / 2] = static_cast<uint8_t>(to[i / 2] | tensor::f32_to_e2m1(std::clamp(v, -6.0f, 6.0f)) << (4 * (i % 2)));
      }
    }
  }
}

void unpack_row_ref(FakeQuant format, const uint8_t* row, int64_t dim, float* values) {
  const uint8_t* scales = row + packed_value_bytes(format, dim);
  for (int64_t i = 0; i < dim; ++i) {
    const uint8_t s = scales[i / block_of(format)];
    const float scale =
        format == FakeQuant::kCompressed ? tensor::e4m3_to_f32(s) : std::bit_cast<float>(uint32_t{s} << 23);
    const auto code = static_cast<uint8_t>(format == FakeQuant::kWindow ? row[i] : row[i / 2] >> (4 * (i % 2)) & 15);
    values[i] = (format == FakeQuant::kWindow ? tensor::e4m3_to_f32(code) : tensor::e2m1_to_f32(code)) * scale;
  }
}

}  // namespace dsf::serve::ops
