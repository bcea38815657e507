#include "dsf/exl3/quantize.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include "dsf/base/check.h"
#include "dsf/base/random.h"
#include "dsf/tensor/dtype.h"
#include "feedback.h"
#include "tile_search.h"

namespace dsf::exl3 {
namespace {

// exl3.md 5.4, widths 1 to 8.
struct Expected {
  float scale;
  double mse;
};
constexpr Expected kMul1[] = {{1.05f, 0.2756},  {0.97f, 0.0687},   {0.95f, 0.01755},  {0.90f, 0.00446},
                              {0.90f, 0.00115}, {0.85f, 0.000292}, {0.80f, 0.000079}, {0.80f, 0.000020}};
constexpr Expected kMcg[] = {{1.3f, 0.2678},   {1.2f, 0.0686},  {1.12f, 0.0173}, {1.06f, 0.00460},
                             {1.06f, 0.00117}, {1.0f, 0.00031}, {1.0f, 0.00008}, {0.95f, 0.00002}};
constexpr Expected k3Inst[] = {{1.3f, 0.2685},   {1.2f, 0.0690},  {1.12f, 0.0178}, {1.06f, 0.00468},
                               {1.06f, 0.00119}, {1.0f, 0.00032}, {1.0f, 0.00008}, {0.95f, 0.00002}};

const Expected& expected(Codebook codebook, int bits) {
  DSF_CHECK(bits >= 1 && bits <= kMaxBits, "width out of range");
  const Expected* table = codebook == Codebook::kMul1 ? kMul1 : codebook == Codebook::kMcg ? kMcg : k3Inst;
  return table[bits - 1];
}

// Calls body(i) for i in [0, n) from several threads, each with a body (and its scratch) of its own.
template <class Make>
void in_parallel(size_t n, int threads, const Make& make_body) {
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    auto body = make_body();
    for (size_t i = next++; i < n; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min(wanted, n); ++i) others.emplace_back(work);
  work();
}

using Grid = std::vector<double>;  // [in, out]

void hadamard_rows(Grid& w) {
  const double norm = 1 / std::sqrt(128.0);
  for (size_t i = 0; i < w.size(); i += 128) {
    hadamard128(std::span<double, 128>(&w[i], 128));
    for (size_t j = i; j < i + 128; ++j) w[j] *= norm;
  }
}

void hadamard_columns(Grid& w, size_t out) {
  const double norm = 1 / std::sqrt(128.0);
  std::vector<double> column(128);
  for (size_t k0 = 0; k0 < w.size() / out; k0 += 128) {
    for (size_t n = 0; n < out; ++n) {
      for (size_t k = 0; k < 128; ++k) column[k] = w[(k0 + k) * out + n];
      hadamard128(std::span<double, 128>(column.data(), 128));
      for (size_t k = 0; k < 128; ++k) w[(k0 + k) * out + n] = column[k] * norm;
    }
  }
}

double rms(std::span<const double> v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares / static_cast<double>(v.size()));
}

// Random signs and a power of two near the matrix's own magnitude, so that suh stays near 1 whatever the weights are. A
// column of zeros gets the scale 0: its output is then exactly 0.
std::vector<uint16_t> output_scales(const Grid& w, size_t out, SplitMix64& random) {
  int exponent = 0;
  if (const double size = rms(w); size > 0) std::frexp(size, &exponent);
  const auto magnitude = static_cast<float>(std::ldexp(1.0, std::clamp(exponent, -14, 15)));
  std::vector<uint16_t> svh(out);
  for (size_t n = 0; n < out; ++n) {
    bool dead = true;
    for (size_t i = n; i < w.size() && dead; i += out) dead = w[i] == 0;
    const float sign = static_cast<float>(random.sign());
    svh[n] = tensor::f32_to_f16(dead ? 0.0f : sign * magnitude);
  }
  return svh;
}

// Signs times what brings every input's row to the codebook's scale, 0 for a row of zeros. w: already divided by svh,
// turned along out.
std::vector<uint16_t> input_scales(const Grid& w, size_t in, size_t out, float scale, SplitMix64& random) {
  std::vector<uint16_t> suh(in);
  for (size_t k = 0; k < in; ++k) {
    const double size = rms(std::span(w).subspan(k * out, out));
    suh[k] = tensor::f32_to_f16(static_cast<float>(random.sign() * size / scale));
    // Beyond fp16: such a row is clipped, but the scales stay finite.
    if ((suh[k] & 0x7fff) >= 0x7c00) suh[k] = static_cast<uint16_t>((suh[k] & 0x8000) | 0x7bff);
  }
  return suh;
}

double unscale(double v, uint16_t scale) {
  const float s = tensor::f16_to_f32(scale);
  return s == 0 ? 0.0 : v / double{s};
}

// Columns quantised together: the two tiles of one search. A column's error feeds back into that column alone, so
// strips are independent and a matrix has the same bits for any number of threads.
constexpr size_t kStrip = 32;

// The targets of one row of tiles, [2][256] in the order of tile_position(): w[first .. first + 16) of a strip
// [in][kStrip] whose later rows hold their errors.
void aim(std::span<const double> strip, std::span<const double> feedback, size_t first, std::span<float, 512> targets) {
  const size_t n_in = strip.size() / kStrip;
  std::array<double, 16 * kStrip> aimed;
  std::copy_n(&strip[first * kStrip], aimed.size(), aimed.begin());
  for (size_t r = 0; r < 16 && !feedback.empty(); ++r) {
    for (size_t k = first + 16; k < n_in; ++k) {
      const double factor = feedback[(first + r) * n_in + k];
      for (size_t c = 0; c < kStrip; ++c) aimed[r * kStrip + c] += factor * strip[k * kStrip + c];
    }
  }
  for (size_t t = 0; t < 512; ++t) {
    const TilePosition at = tile_position(static_cast<int>(t % 256));
    targets[t] = static_cast<float>(aimed[at.row * kStrip + t / 256 * 16 + at.col]);
  }
}

// w: [in, out] in the codebook's scale. Writes the strip's tiles into m.trellis.
void quantize_strip(const Grid& w, std::span<const double> feedback, size_t strip, const detail::TileSearch& search,
                    detail::TileSearch::Scratch& scratch, Matrix& m) {
  const auto n_in = static_cast<size_t>(m.in), n_out = static_cast<size_t>(m.out);
  const size_t tile_words = 16 * static_cast<size_t>(m.bits);
  const auto values = codebook_f32(m.codebook);
  std::vector<double> error(n_in * kStrip);
  for (size_t k = 0; k < n_in; ++k) std::copy_n(&w[k * n_out + strip * kStrip], kStrip, &error[k * kStrip]);
  std::array<float, 512> targets{};
  std::array<TileStates, 2> states{};
  for (size_t first = n_in; first > 0;) {
    first -= 16;
    aim(error, feedback, first, targets);
    search.pair(targets, scratch, states);
    for (size_t i = 0; i < 2; ++i) {
      for (size_t t = 0; t < 256; ++t) {
        const TilePosition at = tile_position(static_cast<int>(t));
        error[(first + at.row) * kStrip + i * 16 + at.col] -= double{values[states[i][t]]};
      }
      const size_t tile = first / 16 * (n_out / 16) + 2 * strip + i;
      pack_states(states[i], m.bits,
                  std::as_writable_bytes(std::span(m.trellis).subspan(tile * tile_words, tile_words)));
    }
  }
}

Result<void> check_arguments(std::span<const float> weight, int64_t out, int64_t in, int bits) {
  const std::string subject = "exl3 quantizer";
  if (bits < 1 || bits > kMaxBits)
    return fail(Code::kUsage, subject, "width " + std::to_string(bits) + " is not 1 to 8 bits");
  if (in <= 0 || out <= 0 || in % kBlock != 0 || out % kBlock != 0) {
    return fail(Code::kUsage, subject,
                "[" + std::to_string(out) + ", " + std::to_string(in) + "] is not whole 128 x 128 blocks",
                "pad the matrix with zeros to multiples of 128");
  }
  DSF_CHECK(weight.size() == static_cast<size_t>(in * out), "weight is not [out, in]");
  for (const float v : weight) {
    if (!std::isfinite(v)) return fail(Code::kContent, subject, "a weight is not finite");
  }
  return {};
}

// sqrt(cost(W - W') / cost(W)), cost the sum over the rows.
template <class Cost>
double error_ratio(const PackedMatrix& m, std::span<const float> weight, const Cost& cost) {
  const auto in = static_cast<size_t>(m.in);
  std::vector<float> decoded(weight.size());
  dequantise(m, decoded);
  double error = 0, size = 0;
  std::vector<double> e(in), w(in);
  for (size_t row = 0; row < weight.size(); row += in) {
    for (size_t k = 0; k < in; ++k) w[k] = double{weight[row + k]}, e[k] = w[k] - double{decoded[row + k]};
    error += cost(e);
    size += cost(w);
  }
  if (error == 0) return 0;
  return size > 0 ? std::sqrt(error / size) : INFINITY;
}

}  // namespace

float best_scale(Codebook codebook, int bits) { return expected(codebook, bits).scale; }
double expected_error(Codebook codebook, int bits) { return std::sqrt(expected(codebook, bits).mse); }

Result<Matrix> quantize(std::span<const float> weight, int64_t out, int64_t in, const QuantizeOptions& options) {
  DSF_OK(check_arguments(weight, out, in, options.bits));
  const auto n_in = static_cast<size_t>(in), n_out = static_cast<size_t>(out);
  Matrix m{in, out, options.bits, options.codebook, {}, {}, {}};
  SplitMix64 random(options.seed);
  Grid w(n_in * n_out);
  for (size_t n = 0; n < n_out; ++n)
    for (size_t k = 0; k < n_in; ++k) w[k * n_out + n] = double{weight[n * n_in + k]};

  m.svh = output_scales(w, n_out, random);
  for (size_t i = 0; i < w.size(); ++i) w[i] = unscale(w[i], m.svh[i % n_out]);
  hadamard_rows(w);
  m.suh = input_scales(w, n_in, n_out, best_scale(options.codebook, options.bits), random);
  for (size_t i = 0; i < w.size(); ++i) w[i] = unscale(w[i], m.suh[i / n_out]);
  hadamard_columns(w, n_out);

  std::vector<double> feedback;
  if (options.hessian != nullptr) {
    std::vector<double> suh(n_in);
    std::transform(m.suh.begin(), m.suh.end(), suh.begin(), tensor::f16_to_f32);
    DSF_TRY(feedback, detail::feedback_matrix(*options.hessian, suh, options.damping));
  }
  m.trellis.resize(w.size() / 16 * static_cast<size_t>(options.bits));
  const detail::TileSearch search(options.codebook, options.bits);
  in_parallel(n_out / kStrip, options.threads, [&] {
    return [&, scratch = search.make_scratch()](size_t strip) mutable {
      quantize_strip(w, feedback, strip, search, scratch, m);
    };
  });
  return m;
}

double relative_error(const PackedMatrix& m, std::span<const float> weight) {
  return error_ratio(m, weight, [](std::span<const double> row) {
    return std::transform_reduce(row.begin(), row.end(), row.begin(), 0.0);
  });
}

double relative_output_error(const PackedMatrix& m, std::span<const float> weight, const Hessian& hessian) {
  DSF_CHECK(hessian.in() == m.in, "moments of another size");
  return error_ratio(m, weight, [&](std::span<const double> row) { return hessian.mean_square(row); });
}

}  // namespace dsf::exl3
