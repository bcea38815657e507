#include "dsf/exl3/decode.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/test/support.h"
#include "exl3_test_util.h"

using namespace dsf::exl3;
using dsf::exl3::test::crc32;
using dsf::exl3::test::Lcg;
using dsf::tensor::f16_to_f32;

namespace {

Codebook codebook_from(const std::string& name) {
  return name == "3inst" ? Codebook::k3Inst : name == "mcg" ? Codebook::kMcg : Codebook::kMul1;
}

std::array<uint16_t, 256> decode_tile(std::span<const std::byte> words, int half_bits, Codebook c) {
  const TileStates states = unpack_states(words, half_bits);
  std::array<uint16_t, 256> tile{};
  for (int t = 0; t < 256; ++t) {
    const TilePosition at = tile_position(t);
    tile[static_cast<size_t>(at.row * 16 + at.col)] = codebook_value(c, states[static_cast<size_t>(t)]);
  }
  return tile;
}

uint16_t hex16(std::istream& in) {
  std::string text;
  in >> text;
  return static_cast<uint16_t>(std::stoul(text, nullptr, 16));
}

void check_tile_line(std::istream& line) {
  int bits = 0;
  std::string codebook, crc;
  double sum = 0;
  line >> bits >> codebook >> crc >> sum;
  CAPTURE(bits);
  CAPTURE(codebook);
  Lcg lcg(0x12345678u + static_cast<uint32_t>(bits));
  const auto words = lcg.words(16 * static_cast<size_t>(bits));
  const auto tile = decode_tile(std::as_bytes(std::span(words)), 2 * bits, codebook_from(codebook));
  for (size_t col = 0; col < 16; ++col) CHECK(tile[col] == hex16(line));
  CHECK(crc32(std::as_bytes(std::span(tile))) == std::stoul(crc, nullptr, 16));
  double total = 0;
  for (const uint16_t v : tile) total += f16_to_f32(v);
  CHECK(std::abs(total - sum) < 1e-6);
}

void check_states_line(std::istream& line) {
  int bits = 0;
  line >> bits;
  Lcg lcg(0x12345678u + static_cast<uint32_t>(bits));
  const auto words = lcg.words(16 * static_cast<size_t>(bits));
  const TileStates states = unpack_states(std::as_bytes(std::span(words)), 2 * bits);
  for (size_t t = 0; t < 8; ++t) CHECK(states[t] == hex16(line));
  CHECK(states[255] == hex16(line));
}

void check_half_line(std::istream& line) {
  int half_bits = 0;
  std::string crc;
  line >> half_bits >> crc;
  Lcg lcg(0x12345678u + 100 + static_cast<uint32_t>(half_bits));
  const auto words = lcg.words(8 * static_cast<size_t>(half_bits));
  const auto bytes = std::as_bytes(std::span(words));
  const TileStates states = unpack_states(bytes, half_bits);
  for (size_t t = 0; t < 8; ++t) CHECK(states[t] == hex16(line));
  const auto tile = decode_tile(bytes, half_bits, Codebook::kMul1);
  for (size_t col = 0; col < 8; ++col) CHECK(tile[col] == hex16(line));
  CHECK(crc32(std::as_bytes(std::span(tile))) == std::stoul(crc, nullptr, 16));
}

}  // namespace

TEST_CASE("the three codebooks have the published values") {
  CHECK(crc32(std::as_bytes(codebook_f16(Codebook::k3Inst))) == 0x4c83d524u);
  CHECK(crc32(std::as_bytes(codebook_f16(Codebook::kMcg))) == 0xd2d13c52u);
  CHECK(crc32(std::as_bytes(codebook_f16(Codebook::kMul1))) == 0x2bdf05c5u);
  CHECK(codebook_value(Codebook::kMul1, 0) == 0xc2e8);
  CHECK(codebook_value(Codebook::kMcg, 43981) == 0x35e7);
  CHECK(codebook_value(Codebook::k3Inst, 65535) == 0xb110);
  CHECK(codebook_f32(Codebook::kMul1)[1] == f16_to_f32(0x3921));
}

TEST_CASE("every tile vector of the specification decodes bit for bit") {
  std::ifstream file(dsf::test::golden() / "exl3_tiles.txt");
  REQUIRE(file.good());
  std::string text;
  int n_tiles = 0, n_states = 0, n_halves = 0;
  while (std::getline(file, text)) {
    std::istringstream line(text);
    std::string kind;
    line >> kind;
    if (kind == "tile") check_tile_line(line), ++n_tiles;
    if (kind == "states") check_states_line(line), ++n_states;
    if (kind == "half") check_half_line(line), ++n_halves;
  }
  CHECK(n_tiles == 24);
  CHECK(n_states == 8);
  CHECK(n_halves == 3);
}

TEST_CASE("packing the states of any words gives the words back, at every width") {
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    CAPTURE(bits);
    Lcg lcg(77u + static_cast<uint32_t>(bits));
    for (int round = 0; round < 8; ++round) {
      const auto words = lcg.words(16 * static_cast<size_t>(bits));
      std::vector<std::byte> packed(words.size() * 2);
      pack_states(unpack_states(std::as_bytes(std::span(words)), 2 * bits), bits, packed);
      CHECK(std::equal(packed.begin(), packed.end(), std::as_bytes(std::span(words)).begin()));
    }
  }
}

TEST_CASE("the 256 values of a tile fill it exactly once") {
  std::array<int, 256> seen{};
  for (int t = 0; t < 256; ++t) ++seen[static_cast<size_t>(tile_position(t).row * 16 + tile_position(t).col)];
  for (const int n : seen) CHECK(n == 1);
  CHECK(tile_position(5).row == 1);
  CHECK(tile_position(5).col == 8);
}

namespace {
// exl3.md 3.9. The draws come tile by tile, in the stored order.
Matrix linear_128_256() { return dsf::exl3::test::random_matrix(128, 256, 3, Codebook::kMul1, 0x00C0FFEE); }

std::vector<double> linear_input() {
  std::vector<double> x(128);
  for (int i = 0; i < 128; ++i) x[static_cast<size_t>(i)] = ((37 * i) % 64 - 32) / 64.0;
  return x;
}
}  // namespace

TEST_CASE("the 128 to 256 linear of the specification: inner and effective weights") {
  const Matrix m = linear_128_256();
  CHECK(m.trellis[0] == 0x2a72);
  CHECK(m.suh[0] == 0x3a50);
  CHECK(m.svh[0] == 0xbd6c);
  std::vector<uint16_t> inner(128 * 256);
  decode_inner(m.view(), inner);
  CHECK(inner[0] == 0x3693);
  CHECK(crc32(std::as_bytes(std::span(inner))) == 0xcc470512u);

  std::vector<float> w(256 * 128);
  dequantise(m.view(), w);
  const double first[8] = {0.4543963, 1.2281481, -0.8177884, -1.7613168, -0.2328407, -1.8198607, 0.2413955, 2.2717560};
  for (size_t n = 0; n < 8; ++n) CHECK(std::abs(double{w[n * 128]} - first[n]) < 1e-6);
  double sum = 0, squares = 0;
  for (const float v : w) sum += double{v}, squares += double{v} * double{v};
  CHECK(std::abs(sum - 189.501767) < 1e-4);
  CHECK(std::abs(squares - 40521.324658) < 1e-3);
}

TEST_CASE("the 128 to 256 linear of the specification: the plain formula and its fp16 rounding points") {
  const Matrix m = linear_128_256();
  const auto x = linear_input();
  std::vector<double> y(256);
  matmul(m.view(), std::span<const double>(x), y);
  const double want[8] = {-3.383987, -1.739619, 2.085989, -3.783392, 0.938838, -8.299717, -0.979837, -2.597730};
  for (size_t n = 0; n < 8; ++n) CHECK(std::abs(y[n] - want[n]) < 1e-6);
  CHECK(std::abs(y[128] + 5.639879) < 1e-6);
  double sum = 0, squares = 0;
  for (const double v : y) sum += v, squares += v * v;
  CHECK(std::abs(sum + 72.109059) < 1e-5);
  CHECK(std::abs(squares - 2948.749044) < 1e-4);

  matmul(m.view(), std::span<const double>(x), y, InputRounding::kFp16);
  const double rounded[4] = {-3.383579, -1.740181, 2.086734, -3.782615};
  for (size_t n = 0; n < 4; ++n) CHECK(std::abs(y[n] - rounded[n]) < 2e-6);
}

TEST_CASE("the plain formula in f32 and the effective weights agree with f64") {
  const Matrix m = dsf::exl3::test::random_matrix(256, 384, 5, Codebook::kMcg, 9);
  std::vector<double> x(2 * 256), y(2 * 384);
  std::vector<float> x32(x.size()), y32(y.size()), w(384 * 256);
  for (size_t i = 0; i < x.size(); ++i) x32[i] = static_cast<float>(x[i] = std::sin(0.37 * static_cast<double>(i)));
  for (size_t i = 0; i < x.size(); ++i) x[i] = x32[i];
  matmul(m.view(), std::span<const double>(x), y);
  matmul(m.view(), std::span<const float>(x32), y32);
  dequantise(m.view(), w);
  double scale = 0;
  for (const double v : y) scale = std::max(scale, std::abs(v));
  for (size_t row = 0; row < 2; ++row) {
    for (size_t n = 0; n < 384; ++n) {
      double from_weights = 0;
      for (size_t k = 0; k < 256; ++k) from_weights += x[row * 256 + k] * double{w[n * 256 + k]};
      CHECK(std::abs(from_weights - y[row * 384 + n]) < 1e-6 * scale);
      CHECK(std::abs(double{y32[row * 384 + n]} - y[row * 384 + n]) < 1e-5 * scale);
    }
  }
}
