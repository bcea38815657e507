#pragma once
// What the quantizer knows of a linear's inputs: their second moments over a calibration text.
//
// A value that owns `in` * `in` doubles (0.5 MB at 256 inputs, 210 MB at 5120); one writer at a time, const from any
// thread. Sums run in the order of the calls, so the same rows give the same bits. Source: exl3.md section 5.1.
#include <cstdint>
#include <span>
#include <vector>

namespace dsf::exl3 {

class Hessian {
 public:
  explicit Hessian(int64_t in);

  // x: n_rows rows of `in` inputs as they meet the matrix (before signs, scales and Hadamard), `stride` floats apart.
  // A value that is not finite is kept and makes the matrix useless: quantize() refuses it.
  void add(const float* x, int64_t n_rows, int64_t stride);
  // The mean of another one's rows, counted as n_rows rows: what is known beforehand. Nothing when `prior` is empty.
  void add_mean(const Hessian& prior, double n_rows);
  // n_rows rows of uncorrelated inputs, each as large as the mean over the inputs so far.
  void add_uncorrelated(double n_rows);

  int64_t in() const { return in_; }
  double n_rows() const { return n_rows_; }
  // Mean of x[i] * x[j]; 0 without rows.
  double at(int64_t i, int64_t j) const;
  double mean_diagonal() const;
  // Mean of (x . v)^2; v: [in].
  double mean_square(std::span<const double> v) const;

 private:
  double& sum(int64_t i, int64_t j) { return sums_[static_cast<size_t>(i * in_ + j)]; }
  int64_t in_;
  double n_rows_ = 0;
  std::vector<double> sums_;  // [in, in], j <= i
};

}  // namespace dsf::exl3
