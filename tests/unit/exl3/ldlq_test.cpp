// Error feedback: what it leaves alone, what it gains, and what it refuses.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "dsf/exl3/decode.h"
#include "dsf/exl3/quantize.h"
#include "exl3_test_util.h"

using namespace dsf::exl3;
using dsf::exl3::test::gaussian;

namespace {

constexpr int64_t kOut = 128, kIn = 256;

Matrix quantized(std::span<const float> w, const QuantizeOptions& options) {
  auto m = quantize(w, kOut, kIn, options);
  REQUIRE_MESSAGE(m.has_value(), m.error().line());
  return std::move(*m);
}

QuantizeOptions with(const Hessian& hessian, int bits, int threads = 0) {
  QuantizeOptions options{bits, Codebook::kMul1, 1, threads};
  options.hessian = &hessian;
  return options;
}

// Rows of inputs that `n_factors` common causes move together, over independent noise of a tenth of their variance;
// input i is as large as sizes(i).
template <class Sizes>
std::vector<float> correlated(int64_t n_rows, int64_t n_factors, uint32_t seed, const Sizes& sizes) {
  const auto mix = gaussian(static_cast<size_t>(n_factors * kIn), seed);
  const auto causes = gaussian(static_cast<size_t>(n_rows * n_factors), seed + 1);
  auto x = gaussian(static_cast<size_t>(n_rows * kIn), seed + 2);
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t i = 0; i < kIn; ++i) {
      float& v = x[static_cast<size_t>(r * kIn + i)];
      v *= std::sqrt(0.1f * static_cast<float>(n_factors));
      for (int64_t f = 0; f < n_factors; ++f)
        v += causes[static_cast<size_t>(r * n_factors + f)] * mix[static_cast<size_t>(f * kIn + i)];
      v *= sizes(i);
    }
  }
  return x;
}

Hessian moments_of(std::span<const float> x) {
  Hessian h(kIn);
  h.add(x.data(), std::ssize(x) / kIn, kIn);
  return h;
}

// Mean square output error with feedback, in units of that without.
double gain(const Hessian& h, std::span<const float> w, int bits) {
  const Matrix plain = quantized(w, {bits, Codebook::kMul1, 1, 0}), fed = quantized(w, with(h, bits));
  const double before = relative_output_error(plain.view(), w, h), after = relative_output_error(fed.view(), w, h);
  return after * after / (before * before);
}

float even(int64_t) { return 1; }

}  // namespace

TEST_CASE("moments are means of products, whatever the calls that brought the rows") {
  const auto x = gaussian(5 * kIn, 3);
  const Hessian whole = moments_of(x);
  Hessian parts(kIn);
  parts.add(x.data(), 2, kIn);
  for (int64_t r = 2; r < 5; ++r) parts.add(x.data() + r * kIn, 1, kIn);
  double want = 0;
  for (size_t r = 0; r < 5; ++r) want += double{x[r * kIn + 7]} * double{x[r * kIn + 200]} / 5;
  CHECK(whole.at(7, 200) == doctest::Approx(want).epsilon(1e-12));
  for (int64_t i = 0; i < kIn; ++i) CHECK(whole.at(i, 200) == parts.at(200, i));

  std::vector<double> v(kIn);
  v[7] = 2, v[200] = -1;
  CHECK(whole.mean_square(v) == doctest::Approx(4 * whole.at(7, 7) - 4 * want + whole.at(200, 200)).epsilon(1e-12));

  Hessian blended = whole;
  blended.add_mean(moments_of(gaussian(9 * kIn, 4)), 5);
  CHECK(blended.n_rows() == 10);
  CHECK(blended.at(3, 4) == doctest::Approx((whole.at(3, 4) + moments_of(gaussian(9 * kIn, 4)).at(3, 4)) / 2));
  Hessian damped = whole;
  damped.add_uncorrelated(5);
  CHECK(damped.at(3, 4) == doctest::Approx(whole.at(3, 4) / 2));
  CHECK(damped.mean_diagonal() == doctest::Approx(whole.mean_diagonal()));
}

TEST_CASE("uncorrelated inputs of one size change no bit, nor do moments without rows") {
  // Every input's weights have the same size, so that the scales keep the identity an identity.
  auto w = gaussian(kOut * kIn, 11);
  for (size_t k = 0; k < kIn; ++k) {
    double squares = 0;
    for (size_t n = 0; n < kOut; ++n) squares += double{w[n * kIn + k]} * double{w[n * kIn + k]};
    for (size_t n = 0; n < kOut; ++n) w[n * kIn + k] /= static_cast<float>(std::sqrt(squares / kOut));
  }
  Hessian identity(kIn);
  for (size_t i = 0; i < kIn; ++i) {
    std::vector<float> unit(kIn);
    unit[i] = 1;
    identity.add(unit.data(), 1, kIn);
  }
  for (const int bits : {2, 3, 5}) {
    CAPTURE(bits);
    const Matrix plain = quantized(w, {bits, Codebook::kMul1, 1, 0});
    for (size_t k = 1; k < kIn; ++k) REQUIRE((plain.suh[k] & 0x7fff) == (plain.suh[0] & 0x7fff));
    for (const Hessian& h : {identity, Hessian(kIn)}) {
      const Matrix fed = quantized(w, with(h, bits));
      CHECK(fed.trellis == plain.trellis);
      CHECK(fed.suh == plain.suh);
      CHECK(fed.svh == plain.svh);
    }
  }
}

TEST_CASE("correlated inputs: feedback lowers the output error") {
  double worst = 0;
  for (const int bits : {2, 3, 4}) {
    for (uint32_t seed = 0; seed < 3; ++seed) {
      const Hessian h = moments_of(correlated(2048, 24, 100 * seed + 5, even));
      worst = std::max(worst, gain(h, gaussian(kOut * kIn, 50 + seed), bits));
    }
  }
  MESSAGE("mean square output error with feedback over that without, worst of 9: " << worst);
  CHECK(worst < 0.3);  // seen: 0.219
}

TEST_CASE("fewer rows than inputs, and inputs of very different size, still gain") {
  const auto w = gaussian(kOut * kIn, 60);
  const Hessian few = moments_of(correlated(40, 24, 7, even));
  CHECK(gain(few, w, 3) < 0.5);
  const Hessian skewed = moments_of(correlated(1024, 24, 8, [](int64_t i) { return i % 32 == 0 ? 30.0f : 1.0f; }));
  CHECK(gain(skewed, w, 3) < 0.5);
}

TEST_CASE("inputs that are never active, and one row alone, leave finite weights of the usual error") {
  const auto w = gaussian(kOut * kIn, 61);
  const Hessian half = moments_of(correlated(1024, 24, 9, [](int64_t i) { return i % 2 == 0 ? 0.0f : 1.0f; }));
  const Hessian single = moments_of(correlated(1, 24, 10, even));
  for (const Hessian& h : {half, single}) {
    const Matrix m = quantized(w, with(h, 4));
    CHECK(relative_error(m.view(), w) < 3 * expected_error(Codebook::kMul1, 4));
    CHECK(gain(h, w, 4) < 0.5);
  }
  const Hessian never = moments_of(std::vector<float>(8 * kIn));
  CHECK(quantized(w, with(never, 4)).trellis == quantized(w, {4, Codebook::kMul1, 1, 0}).trellis);
}

TEST_CASE("dead outputs and inputs without weights stay dead under feedback") {
  auto w = gaussian(kOut * kIn, 62);
  for (size_t i = 0; i < w.size(); ++i)
    if (i / kIn % 5 == 0 || i % kIn % 7 == 0) w[i] = 0;
  const Hessian h = moments_of(correlated(512, 24, 12, even));
  const Matrix m = quantized(w, with(h, 5));
  std::vector<float> got(w.size());
  dequantise(m.view(), got);
  for (size_t i = 0; i < w.size(); ++i)
    if (w[i] == 0) CHECK(got[i] == 0);
}

TEST_CASE("with feedback, too, the same bytes for any number of threads") {
  const auto w = gaussian(kOut * kIn, 63);
  const Hessian h = moments_of(correlated(512, 24, 13, even));
  CHECK(quantized(w, with(h, 3, 1)).trellis == quantized(w, with(h, 3, 5)).trellis);
}

TEST_CASE("moments that are not finite are refused as content, of another size as usage") {
  const auto w = gaussian(kOut * kIn, 64);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto x = correlated(64, 24, 14, even);
    x[1000] = bad;
    const Hessian h = moments_of(x);
    CHECK(quantize(w, kOut, kIn, with(h, 3)).error().code == dsf::Code::kContent);
  }
  const Hessian other(128);
  CHECK(quantize(w, kOut, kIn, with(other, 3)).error().code == dsf::Code::kUsage);
}
