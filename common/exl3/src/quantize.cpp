#include "dsf/exl3/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <thread>

#include "dsf/base/check.h"
#include "dsf/base/random.h"
#include "dsf/tensor/dtype.h"
#include "viterbi.h"

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

// The order in which viterbi_kernel.h walks the states.
std::vector<float> arrange_values(Codebook codebook, int bits) {
  const auto values = codebook_f32(codebook);
  const int branches = 1 << bits, groups = 1 << (16 - 2 * bits), chunk = std::min(branches, 32);
  std::vector<float> arranged;
  arranged.reserve(65536);
  const auto push = [&](int p, int g, int b) {
    arranged.push_back(values[static_cast<size_t>(p << (16 - bits) | g << bits | b)]);
  };
  if (bits <= 2) {
    for (int g0 = 0; g0 < groups; g0 += 8)
      for (int p = 0; p < branches; ++p)
        for (int b = 0; b < branches; ++b)
          for (int g = g0; g < g0 + 8; ++g) push(p, g, b);
  } else {
    for (int g = 0; g < groups; ++g)
      for (int b0 = 0; b0 < branches; b0 += chunk)
        for (int p = 0; p < branches; ++p)
          for (int b = b0; b < b0 + chunk; ++b) push(p, g, b);
  }
  return arranged;
}

detail::SearchPair search_pair() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return detail::search_pair_avx2;
#endif
  return detail::search_pair_baseline;
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

std::vector<float> tile_targets(const Grid& w, size_t in, size_t out) {
  std::vector<float> targets;
  targets.reserve(w.size());
  for (size_t kt = 0; kt < in; kt += 16) {
    for (size_t nt = 0; nt < out; nt += 16) {
      for (int t = 0; t < 256; ++t) {
        const TilePosition at = tile_position(t);
        targets.push_back(static_cast<float>(w[(kt + at.row) * out + nt + at.col]));
      }
    }
  }
  return targets;
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

}  // namespace

float best_scale(Codebook codebook, int bits) { return expected(codebook, bits).scale; }
double expected_error(Codebook codebook, int bits) { return std::sqrt(expected(codebook, bits).mse); }

void quantize_tiles(std::span<const float> targets, int bits, Codebook codebook, int threads,
                    std::span<TileStates> states) {
  DSF_CHECK(bits >= 1 && bits <= kMaxBits && targets.size() == states.size() * 256, "targets and states disagree");
  const std::vector<float> values = arrange_values(codebook, bits);
  const detail::SearchPair search = search_pair();
  in_parallel((states.size() + 1) / 2, threads, [&] {
    return [&, scratch = std::vector<float>(detail::search_scratch_floats(bits))](size_t pair) mutable {
      std::array<float, 512> in{};
      std::array<uint16_t, 512> found{};
      const size_t first = 2 * pair, n = std::min<size_t>(2, states.size() - first);
      std::copy_n(targets.begin() + static_cast<std::ptrdiff_t>(first * 256), n * 256, in.begin());
      search(bits, values.data(), in.data(), scratch.data(), found.data());
      for (size_t i = 0; i < n; ++i)
        std::copy_n(found.begin() + static_cast<std::ptrdiff_t>(i * 256), 256, states[first + i].begin());
    };
  });
}

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

  std::vector<TileStates> states(w.size() / 256);
  quantize_tiles(tile_targets(w, n_in, n_out), options.bits, options.codebook, options.threads, states);
  const size_t tile_words = 16 * static_cast<size_t>(options.bits);
  m.trellis.resize(states.size() * tile_words);
  for (size_t i = 0; i < states.size(); ++i) {
    pack_states(states[i], options.bits,
                std::as_writable_bytes(std::span(m.trellis).subspan(i * tile_words, tile_words)));
  }
  return m;
}

double relative_error(const PackedMatrix& m, std::span<const float> weight) {
  std::vector<float> decoded(weight.size());
  dequantise(m, decoded);
  double error = 0, size = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    const double d = double{weight[i]} - double{decoded[i]};
    error += d * d;
    size += double{weight[i]} * double{weight[i]};
  }
  if (error == 0) return 0;
  return size > 0 ? std::sqrt(error / size) : INFINITY;
}

}  // namespace dsf::exl3
