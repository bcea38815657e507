#include "feedback.h"

#include <cmath>

#include "dsf/exl3/decode.h"
#include "dsf/exl3/matrix.h"

namespace dsf::exl3::detail {
namespace {

constexpr double kNothing = 1e-20;  // mean square below which no input counts as active
constexpr int kAttempts = 11;

// H A moments A H, symmetric to the last bit.
std::vector<double> rotate(const Hessian& moments, std::span<const double> suh) {
  const size_t n = suh.size();
  std::vector<double> r(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      r[i * n + j] = moments.at(static_cast<int64_t>(i), static_cast<int64_t>(j)) * (suh[i] * suh[j]);
  for (size_t i = 0; i < n * n; i += 128) hadamard128(std::span<double, 128>(&r[i], 128));
  std::vector<double> column(128);
  for (size_t i0 = 0; i0 < n; i0 += 128) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t i = 0; i < 128; ++i) column[i] = r[(i0 + i) * n + j];
      hadamard128(std::span<double, 128>(column.data(), 128));
      for (size_t i = 0; i < 128; ++i) r[(i0 + i) * n + j] = column[i] / 128;  // both 1/sqrt(128)
    }
  }
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) r[i * n + j] = r[j * n + i];
  return r;
}

// r = U^T U, U in the upper triangle; false when r is not positive definite.
bool factor(std::vector<double>& r, size_t n) {
  for (size_t k = 0; k < n; ++k) {
    double* const pivot = &r[k * n];
    if (!(pivot[k] > 0)) return false;
    const double root = std::sqrt(pivot[k]);
    for (size_t j = k; j < n; ++j) pivot[j] /= root;
    for (size_t i = k + 1; i < n; ++i) {
      const double factor = pivot[i];
      double* const row = &r[i * n];
      for (size_t j = i; j < n; ++j) row[j] -= factor * pivot[j];
    }
  }
  return true;
}

// U to M: every block row times the inverse of its diagonal block.
void normalise(std::vector<double>& u, size_t n) {
  for (size_t first = 0; first < n; first += kTile) {
    const size_t last = first + kTile;
    for (size_t i = last; i-- > first;) {
      double* const row = &u[i * n];
      for (size_t k = i + 1; k < last; ++k) {
        const double factor = row[k];
        for (size_t j = last; j < n; ++j) row[j] -= factor * u[k * n + j];
      }
      for (size_t j = last; j < n; ++j) row[j] /= row[i];
    }
  }
}

}  // namespace

Result<std::vector<double>> feedback_matrix(const Hessian& moments, std::span<const double> suh, double damping) {
  const std::string subject = "exl3 quantizer";
  const size_t n = suh.size();
  if (moments.in() != std::ssize(suh))
    return fail(Code::kUsage, subject,
                "moments of " + std::to_string(moments.in()) + " inputs for a matrix of " + std::to_string(n));
  const std::vector<double> rotated = rotate(moments, suh);
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += rotated[i * n + i];
  for (const double v : rotated) {
    if (!std::isfinite(v))
      return fail(Code::kContent, subject, "the calibration inputs are not finite", "look for NaN in the activations");
  }
  const double size = trace / static_cast<double>(n);
  if (moments.mean_diagonal() < kNothing || size <= 0) return std::vector<double>();
  double added = damping * size;
  for (int attempt = 0; attempt < kAttempts; ++attempt, added += 2 * damping * size) {
    std::vector<double> u = rotated;
    for (size_t i = 0; i < n; ++i) u[i * n + i] += added;
    if (!factor(u, n)) continue;
    normalise(u, n);
    return u;
  }
  return fail(Code::kContent, subject, "the moments of the calibration inputs are not positive definite",
              "raise the damping");
}

}  // namespace dsf::exl3::detail
