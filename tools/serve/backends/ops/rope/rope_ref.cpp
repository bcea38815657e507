#include <algorithm>
#include <cmath>
#include <numbers>

#include "tools/serve/backends/ops/rope/rope.h"

namespace dsf::serve::ops {
namespace {

// The pair index whose wavelength makes `rotations` turns over the original length.
double yarn_corner(double rotations, int64_t rope_dim, double theta, double length) {
  return static_cast<double>(rope_dim) * std::log(length / (2 * std::numbers::pi * rotations)) / (2 * std::log(theta));
}

}  // namespace

std::vector<float> rope_frequencies(int64_t rope_dim, double theta, const YarnParams& yarn) {
  std::vector<float> freq(static_cast<size_t>(rope_dim / 2));
  double low = 0, high = 0;
  if (yarn.enabled) {
    const auto length = static_cast<double>(yarn.original_length);
    low = std::max(std::floor(yarn_corner(yarn.beta_fast, rope_dim, theta, length)), 0.0);
    high = std::min(std::ceil(yarn_corner(yarn.beta_slow, rope_dim, theta, length)), static_cast<double>(rope_dim - 1));
    if (high <= low) high = low + 0.001;  // a step instead of a ramp; never the case at released sizes
  }
  for (size_t i = 0; i < freq.size(); ++i) {
    const double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dim));
    if (!yarn.enabled) {
      freq[i] = static_cast<float>(f);
      continue;
    }
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    freq[i] = static_cast<float>(f / yarn.factor * ramp + f * (1 - ramp));
  }
  return freq;
}

void rope_ref(const RopeArgs& a) {
  const int64_t pairs = a.rope_dim / 2;
  std::vector<float> cosine(static_cast<size_t>(pairs)), sine(static_cast<size_t>(pairs));
  for (int64_t r = 0; r < a.n_rows; ++r) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<float>(a.positions[r]) * a.freq[i];  // the f32 product, then exact trigonometry
      cosine[static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
      sine[static_cast<size_t>(i)] = static_cast<float>(a.inverse ? -std::sin(angle) : std::sin(angle));
    }
    for (int64_t h = 0; h < a.n_heads; ++h) {
      float* x = a.x + (r * a.n_heads + h + 1) * a.head_dim - a.rope_dim;
      for (int64_t i = 0; i < pairs; ++i) {
        const float c = cosine[static_cast<size_t>(i)], s = sine[static_cast<size_t>(i)];
        const float re = x[2 * i], im = x[2 * i + 1];
        x[2 * i] = re * c - im * s;
        x[2 * i + 1] = re * s + im * c;
      }
    }
  }
}

}  // namespace dsf::serve::ops
