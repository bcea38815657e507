#pragma once
// What the EXL3 tests share: the generator of the specification's vectors, the CRC it names, and matrices of random
// words.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dsf/exl3/matrix.h"
#include "dsf/tensor/dtype.h"

namespace dsf::exl3::test {

// exl3.md 3.8: 32-bit LCG, the upper half of each state is one word.
class Lcg {
 public:
  explicit Lcg(uint32_t seed) : state_(seed) {}
  uint16_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<uint16_t>(state_ >> 16);
  }
  std::vector<uint16_t> words(size_t n) {
    std::vector<uint16_t> out(n);
    for (uint16_t& w : out) w = next();
    return out;
  }

 private:
  uint32_t state_;
};

// The zlib/IEEE CRC-32.
inline uint32_t crc32(std::span<const std::byte> data) {
  uint32_t crc = 0xffffffffu;
  for (const std::byte b : data) {
    crc ^= static_cast<uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// Scales of exl3.md 3.9: a sign and a magnitude in [0.5, 1.5).
inline uint16_t scale_from(uint16_t u) {
  const float magnitude = 0.5f + static_cast<float>(u >> 1) / 32768.0f;
  return tensor::f32_to_f16(u & 1 ? -magnitude : magnitude);
}

// Any words are a valid trellis.
inline Matrix random_matrix(int64_t in, int64_t out, int bits, Codebook codebook, uint32_t seed) {
  Lcg lcg(seed);
  Matrix m{in, out, bits, codebook, {}, {}, {}};
  m.trellis = lcg.words(static_cast<size_t>(in * out * bits / 16));
  for (int64_t i = 0; i < in; ++i) m.suh.push_back(scale_from(lcg.next()));
  for (int64_t i = 0; i < out; ++i) m.svh.push_back(scale_from(lcg.next()));
  return m;
}

// Sum of twelve uniforms: close enough to a Gaussian, and without the tail beyond the codebook that would rule at wide
// widths.
inline std::vector<float> gaussian(size_t n, uint32_t seed) {
  Lcg lcg(seed);
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(lcg.next()) / 65536.0f;
    v = sum - 6.0f;
  }
  return out;
}

}  // namespace dsf::exl3::test
