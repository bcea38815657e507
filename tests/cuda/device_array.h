#pragma once
// Test helpers for the device: arrays that copy both ways, poisoned outputs, and the relative distance that judges a kernel.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <vector>

namespace dsf::test {

inline bool have_device() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

// A visible skip where there is no device.
#define NEED_DEVICE(name) \
  if (!test::have_device()) return test::skip(name, "no CUDA device")

// A Result that must hold.
#define OK(expr)                                                               \
  do {                                                                         \
    const auto& r_ = (expr);                                                   \
    REQUIRE_MESSAGE(r_.has_value(), (r_ ? std::string() : r_.error().line())); \
  } while (false)

#define DSF_REQUIRE_CUDA(expr)                                                    \
  do {                                                                            \
    const cudaError_t e_ = (expr);                                                \
    REQUIRE_MESSAGE(e_ == cudaSuccess, #expr << ": " << cudaGetErrorString(e_)); \
  } while (false)

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) : n_(n) {
    DSF_REQUIRE_CUDA(cudaMalloc(&p_, std::max<size_t>(n, 1) * sizeof(T)));
    DSF_REQUIRE_CUDA(cudaMemset(p_, 0xff, n * sizeof(T)));  // NaN for floats: an output nobody wrote shows
    DSF_REQUIRE_CUDA(cudaDeviceSynchronize());              // streams of the library do not wait for the default stream
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    if (!host.empty()) DSF_REQUIRE_CUDA(cudaMemcpy(p_, host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(p_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() { return p_; }
  std::vector<T> host() const {
    std::vector<T> out(n_);
    DSF_REQUIRE_CUDA(cudaDeviceSynchronize());
    DSF_REQUIRE_CUDA(cudaMemcpy(out.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  T* p_ = nullptr;
  size_t n_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  std::vector<float> normal(size_t n, float sigma = 1) {
    std::normal_distribution<float> d(0, sigma);
    std::vector<float> out(n);
    for (float& v : out) v = d(engine_);
    return out;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }

 private:
  std::mt19937_64 engine_;
};

// ||got - want|| / ||want||; infinite when anything is not finite.
inline double relative_distance(const std::vector<float>& got, const std::vector<float>& want) {
  double diff = 0, norm = 0;
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    diff += std::pow(double{got[i]} - double{want[i]}, 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return norm > 0 ? std::sqrt(diff / norm) : std::sqrt(diff);
}

}  // namespace dsf::test
