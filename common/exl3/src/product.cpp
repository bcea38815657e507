// The effective weights and the plain formula: everything with a Hadamard in it.
#include <cmath>
#include <vector>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/exl3/decode.h"
#include "dsf/tensor/dtype.h"

namespace dsf::exl3 {
namespace {

template <class T>
void butterflies(std::span<T, 128> x) {
  for (size_t stride = 1; stride < 128; stride *= 2) {
    for (size_t base = 0; base < 128; base += 2 * stride) {
      for (size_t i = base; i < base + stride; ++i) {
        const T a = x[i], b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
}

template <class T>
std::vector<T> scale_values(std::span<const std::byte> f16) {
  std::vector<T> values(f16.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) values[i] = tensor::f16_to_f32(load_le<uint16_t>(f16.data() + 2 * i));
  return values;
}

template <class T>
T round_f16(T v) {
  return tensor::f16_to_f32(tensor::f32_to_f16(static_cast<float>(v)));
}

// One row of x into the rotated basis.
template <class T>
void rotate_input(std::span<const T> x, std::span<const T> suh, InputRounding rounding, std::span<T> rotated) {
  const T norm = static_cast<T>(1 / std::sqrt(128.0));
  const bool f16 = rounding == InputRounding::kFp16;
  for (size_t i = 0; i < x.size(); ++i) rotated[i] = f16 ? round_f16(x[i] * suh[i]) : x[i] * suh[i];
  for (size_t block = 0; block < x.size(); block += 128) {
    butterflies(rotated.subspan(block).template first<128>());
    for (size_t i = block; i < block + 128; ++i) rotated[i] = f16 ? round_f16(rotated[i] * norm) : rotated[i] * norm;
  }
}

template <class T>
void matmul_as(const PackedMatrix& m, std::span<const T> x, std::span<T> y, InputRounding rounding) {
  const auto in = static_cast<size_t>(m.in), out = static_cast<size_t>(m.out);
  DSF_CHECK(x.size() % in == 0 && y.size() == x.size() / in * out, "x is not [n, in] or y is not [n, out]");
  std::vector<uint16_t> inner(in * out);
  decode_inner(m, inner);
  const std::vector<T> suh = scale_values<T>(m.suh), svh = scale_values<T>(m.svh);
  const T norm = static_cast<T>(1 / std::sqrt(128.0));
  std::vector<T> rotated(in);
  for (size_t row = 0; row < x.size() / in; ++row) {
    rotate_input<T>(x.subspan(row * in, in), suh, rounding, rotated);
    const std::span<T> z = y.subspan(row * out, out);
    for (T& v : z) v = 0;
    for (size_t k = 0; k < in; ++k) {
      for (size_t n = 0; n < out; ++n) z[n] += rotated[k] * static_cast<T>(tensor::f16_to_f32(inner[k * out + n]));
    }
    for (size_t block = 0; block < out; block += 128) butterflies(z.subspan(block).template first<128>());
    for (size_t n = 0; n < out; ++n) z[n] = z[n] * norm * svh[n];
  }
}

}  // namespace

void hadamard128(std::span<float, 128> x) { butterflies(x); }
void hadamard128(std::span<double, 128> x) { butterflies(x); }

void dequantise(const PackedMatrix& m, std::span<float> weight) {
  const auto in = static_cast<size_t>(m.in), out = static_cast<size_t>(m.out);
  DSF_CHECK(weight.size() == in * out, "buffer is not [out, in]");
  std::vector<uint16_t> inner(in * out);
  decode_inner(m, inner);
  const std::vector<double> suh = scale_values<double>(m.suh), svh = scale_values<double>(m.svh);
  std::vector<double> strip(128 * out);  // one block of inputs
  std::vector<double> column(128);
  for (size_t k0 = 0; k0 < in; k0 += 128) {
    for (size_t i = 0; i < 128 * out; ++i) strip[i] = tensor::f16_to_f32(inner[k0 * out + i]);
    for (size_t i = 0; i < 128 * out; i += 128) butterflies(std::span<double, 128>(&strip[i], 128));
    for (size_t n = 0; n < out; ++n) {
      for (size_t k = 0; k < 128; ++k) column[k] = strip[k * out + n];
      butterflies(std::span<double, 128>(column.data(), 128));
      // Both 1/sqrt(128) together are exact; the sums before them are, too.
      for (size_t k = 0; k < 128; ++k) {
        weight[n * in + k0 + k] = static_cast<float>(column[k] / 128 * (suh[k0 + k] * svh[n]));
      }
    }
  }
}

void matmul(const PackedMatrix& m, std::span<const double> x, std::span<double> y, InputRounding rounding) {
  matmul_as<double>(m, x, y, rounding);
}
void matmul(const PackedMatrix& m, std::span<const float> x, std::span<float> y, InputRounding rounding) {
  matmul_as<float>(m, x, y, rounding);
}

}  // namespace dsf::exl3
