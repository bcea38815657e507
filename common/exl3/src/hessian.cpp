#include "dsf/exl3/hessian.h"

#include <algorithm>

#include "dsf/base/check.h"

namespace dsf::exl3 {

Hessian::Hessian(int64_t in) : in_(in), sums_(static_cast<size_t>(in * in)) {}

void Hessian::add(const float* x, int64_t n_rows, int64_t stride) {
  for (int64_t i = 0; i < in_; ++i) {
    double* const to = &sum(i, 0);
    for (int64_t r = 0; r < n_rows; ++r) {
      const float* const row = x + r * stride;
      const double xi = row[i];
      for (int64_t j = 0; j <= i; ++j) to[j] += xi * double{row[j]};
    }
  }
  n_rows_ += static_cast<double>(n_rows);
}

void Hessian::add_mean(const Hessian& prior, double n_rows) {
  DSF_CHECK(prior.in_ == in_, "moments of another size");
  if (prior.n_rows_ == 0) return;
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += prior.sums_[i] * (n_rows / prior.n_rows_);
  n_rows_ += n_rows;
}

void Hessian::add_uncorrelated(double n_rows) {
  const double size = mean_diagonal();
  for (int64_t i = 0; i < in_; ++i) sum(i, i) += size * n_rows;
  n_rows_ += n_rows;
}

double Hessian::at(int64_t i, int64_t j) const {
  return n_rows_ == 0 ? 0 : sums_[static_cast<size_t>(std::max(i, j) * in_ + std::min(i, j))] / n_rows_;
}

double Hessian::mean_diagonal() const {
  double trace = 0;
  for (int64_t i = 0; i < in_; ++i) trace += at(i, i);
  return trace / static_cast<double>(in_);
}

double Hessian::mean_square(std::span<const double> v) const {
  DSF_CHECK(std::ssize(v) == in_, "a vector of another size");
  double sum = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    const double* const row = &sums_[i * v.size()];
    double across = 0;
    for (size_t j = 0; j < i; ++j) across += row[j] * v[j];
    sum += v[i] * (2 * across + row[i] * v[i]);
  }
  return n_rows_ == 0 ? 0 : sum / n_rows_;
}

}  // namespace dsf::exl3
