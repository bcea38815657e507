#include "dsf/exl3/matrix.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/exl3/decode.h"
#include "dsf/test/support.h"
#include "exl3_test_util.h"

using namespace dsf::exl3;
using dsf::exl3::test::random_matrix;
using dsf::safetensors::Checkpoint;
using dsf::safetensors::TensorData;
using dsf::tensor::DType;

namespace {

// Writes the parts of one matrix "m" after a change, and opens it.
dsf::Result<int> open_changed(const std::function<void(std::vector<TensorData>&)>& change) {
  dsf::test::TempDir dir;
  auto parts = to_tensors(random_matrix(256, 128, 3, Codebook::kMul1, 5), "m");
  change(parts);
  REQUIRE(dsf::safetensors::write_file(dir / "model.safetensors", parts).has_value());
  auto checkpoint = Checkpoint::open(dir.path());
  REQUIRE(checkpoint.has_value());
  auto m = open(*checkpoint, "m", 128, 256);
  if (!m) return dsf::fail(m.error());
  return m->bits;
}

void refused(dsf::Code code, const std::string& text, const std::function<void(std::vector<TensorData>&)>& change) {
  const auto result = open_changed(change);
  REQUIRE(!result.has_value());
  CHECK(result.error().code == code);
  CHECK(result.error().line().find(text) != std::string::npos);
  CAPTURE(result.error().line());
}

// Part 0 is the trellis, 1 suh, 2 svh, 3 the marker.
void reshape(TensorData& t, dsf::tensor::Shape shape) {
  t.bytes.resize(static_cast<size_t>(*dsf::tensor::element_count(shape)) * dsf::tensor::dtype_size(t.dtype));
  t.shape = std::move(shape);
}

std::vector<double> product(const Matrix& m, const std::vector<double>& x) {
  std::vector<double> y(x.size() / static_cast<size_t>(m.in) * static_cast<size_t>(m.out));
  matmul(m.view(), std::span<const double>(x), y);
  return y;
}

std::vector<double> wave(size_t n) {
  std::vector<double> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = std::cos(0.71 * static_cast<double>(i));
  return x;
}

}  // namespace

TEST_CASE("a written matrix opens with its width and codebook") {
  for (const Codebook c : {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1}) {
    dsf::test::TempDir dir;
    const Matrix written = random_matrix(128, 256, 7, c, 3);
    REQUIRE(
        dsf::safetensors::write_file(dir / "model.safetensors", to_tensors(written, "layers.0.attn.wq_a")).has_value());
    auto checkpoint = Checkpoint::open(dir.path());
    REQUIRE(checkpoint.has_value());
    CHECK(is_packed(*checkpoint, "layers.0.attn.wq_a"));
    CHECK(!is_packed(*checkpoint, "layers.0.attn"));
    auto m = open(*checkpoint, "layers.0.attn.wq_a");
    REQUIRE(m.has_value());
    CHECK(m->bits == 7);
    CHECK(m->codebook == c);
    CHECK(m->in == 128);
    CHECK(m->out == 256);
    CHECK(std::equal(m->trellis.begin(), m->trellis.end(), std::as_bytes(std::span(written.trellis)).begin()));
  }
}

TEST_CASE("a matrix that is not what it must be is refused with the name of the part") {
  CHECK(open_changed([](auto&) {}).value() == 3);
  refused(dsf::Code::kMissing, "m.suh", [](auto& p) { p.erase(p.begin() + 1); });
  refused(dsf::Code::kMissing, "m.trellis", [](auto& p) { p.erase(p.begin()); });
  refused(dsf::Code::kContent, "m.mul1: marker is", [](auto& p) { p[3].bytes[0] ^= std::byte{1}; });
  refused(dsf::Code::kContent, "m.mcg: stands beside .mul1", [](auto& p) {
    p.push_back(p[3]);
    p[4].name = "m.mcg";
  });
  refused(dsf::Code::kContent, "m.trellis: want I16", [](auto& p) { p[0].dtype = DType::kF16; });
  refused(dsf::Code::kContent, "128 x 128 blocks", [](auto& p) { reshape(p[0], {8, 12, 48}); });
  refused(dsf::Code::kContent, "half-integer", [](auto& p) { reshape(p[0], {16, 8, 40}); });
  refused(dsf::Code::kContent, "no width of 1 to 8", [](auto& p) { reshape(p[0], {16, 8, 144}); });
  refused(dsf::Code::kContent, "the configuration wants", [](auto& p) {
    reshape(p[0], {8, 8, 48});
    reshape(p[1], {128});
  });
  refused(dsf::Code::kContent, "m.svh: want 128 values", [](auto& p) { reshape(p[2], {256}); });
  refused(dsf::Code::kContent, "m.suh: value 2 is not finite", [](auto& p) { p[1].bytes[5] = std::byte{0x7c}; });
  refused(dsf::Code::kContent, "m.bias", [](auto& p) {
    p.push_back({"m.bias", DType::kF16, {1}, std::vector<std::byte>(2)});
  });
  refused(dsf::Code::kContent, "m.su", [](auto& p) {
    p.push_back({"m.su", DType::kI16, {1}, std::vector<std::byte>(2)});
  });
}

TEST_CASE("the outputs of column splits stand side by side, those of row splits add up") {
  const Matrix whole = random_matrix(384, 256, 4, Codebook::kMul1, 11);
  const auto x = wave(2 * 384);
  const auto y = product(whole, x);

  const auto left = slice_columns(whole.view(), 0, 128), right = slice_columns(whole.view(), 128, 256);
  REQUIRE((left.has_value() && right.has_value()));
  const auto y_left = product(*left, x), y_right = product(*right, x);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t n = 0; n < 128; ++n) {
      CHECK(y_left[row * 128 + n] == y[row * 256 + n]);
      CHECK(y_right[row * 128 + n] == y[row * 256 + 128 + n]);
    }
  }

  const auto first = slice_rows(whole.view(), 0, 256), rest = slice_rows(whole.view(), 256, 384);
  REQUIRE((first.has_value() && rest.has_value()));
  std::vector<double> x_first, x_rest;
  for (size_t row = 0; row < 2; ++row) {
    x_first.insert(x_first.end(), &x[row * 384], &x[row * 384 + 256]);
    x_rest.insert(x_rest.end(), &x[row * 384 + 256], &x[row * 384] + 384);
  }
  const auto y_first = product(*first, x_first), y_rest = product(*rest, x_rest);
  for (size_t i = 0; i < y.size(); ++i) CHECK(std::abs(y_first[i] + y_rest[i] - y[i]) < 1e-10);
}

TEST_CASE("a split off the 128-blocks is a usage error") {
  const Matrix m = random_matrix(256, 256, 1, Codebook::kMcg, 1);
  for (const auto& [first, last] : {std::pair{0, 64}, {64, 128}, {0, 384}, {-128, 128}, {128, 128}}) {
    CHECK(slice_columns(m.view(), first, last).error().code == dsf::Code::kUsage);
    CHECK(slice_rows(m.view(), first, last).error().code == dsf::Code::kUsage);
  }
}
