#include "tools/serve/backends/ops/linear/linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "tools/serve/backends/ops/common/dot.h"
#include "tools/serve/backends/ops/rmsnorm/rmsnorm.h"

namespace dsf::serve::ops {
namespace {
std::vector<std::byte> bytes(std::initializer_list<int> v) {
  std::vector<std::byte> b;
  for (const int x : v) b.push_back(static_cast<std::byte>(x));
  return b;
}
}  // namespace

TEST_CASE("a dot product covers every length, also the odd tails") {
  std::vector<float> a(100), b(100);
  for (int n = 0; n <= 100; ++n) {
    float want = 0;
    for (int i = 0; i < n; ++i) {
      a[static_cast<size_t>(i)] = static_cast<float>(i % 7 - 3);
      b[static_cast<size_t>(i)] = static_cast<float>(i % 5 - 2);
      want += a[static_cast<size_t>(i)] * b[static_cast<size_t>(i)];  // small integers: exact in any order
    }
    CHECK(dot(a.data(), b.data(), n) == want);
  }
}

TEST_CASE("linear multiplies rows by rows of the weight and honours strides") {
  const std::vector<float> x = {1, 2, 9, 3, 4, 9}, w = {1, 0, 0, 1, 1, 1};  // two rows of 2 with stride 3; W [3, 2]
  std::vector<float> y(8, -1.0f);
  linear_ref(
      {.x = x.data(), .w = w.data(), .y = y.data(), .n_rows = 2, .in = 2, .out = 3, .x_stride = 3, .y_stride = 4});
  CHECK(y == std::vector<float>{1, 2, 3, -1, 3, 4, 7, -1});
}

TEST_CASE("E4M3 weights take the scale of their 32x32 block, with short last blocks") {
  const int64_t out = 33, in = 34;
  std::vector<std::byte> weight(static_cast<size_t>(out * in), std::byte{0x38});  // 1.0
  weight[1] = std::byte{0xb8};                                                    // -1
  weight[static_cast<size_t>(32 * in + 33)] = std::byte{0x7e};                    // 448
  std::vector<float> w(weight.size());
  dequantise_fp8_blocks(weight, bytes({127, 128, 126, 130}), out, in, w);
  CHECK(w[0] == 1.0f);
  CHECK(w[1] == -1.0f);
  CHECK(w[32] == 2.0f);                                          // column block 1
  CHECK(w[static_cast<size_t>(32 * in)] == 0.5f);                // row block 1
  CHECK(w[static_cast<size_t>(32 * in + 33)] == 448.0f * 8.0f);  // both
}

TEST_CASE("FP4 weights: the low nibble is the even column, one scale per 32 inputs, minus zero is zero") {
  std::vector<std::byte> weight(32, std::byte{0x00});
  weight[0] = std::byte{0x72};   // 1, 6
  weight[1] = std::byte{0x8f};   // -6, -0
  weight[16] = std::byte{0x31};  // 0.5, 1.5 in the second block
  std::vector<float> w(64);
  dequantise_fp4_rows(weight, bytes({127, 129}), 1, 64, w);
  CHECK(w[0] == 1.0f);
  CHECK(w[1] == 6.0f);
  CHECK(w[2] == -6.0f);
  CHECK(w[3] == 0.0f);
  CHECK_FALSE(std::signbit(w[3]));
  CHECK(w[32] == 2.0f);
  CHECK(w[33] == 6.0f);
}

TEST_CASE("rmsnorm divides by the root mean square; a zero row stays zero and finite") {
  const std::vector<float> w = {1, 2};
  std::vector<float> x = {3, -3, 0, 0};
  rmsnorm_ref({.x = x.data(), .w = w.data(), .y = x.data(), .n_rows = 2, .dim = 2, .eps = 1e-20f});
  CHECK(x == std::vector<float>{1, -2, 0, 0});
}

}  // namespace dsf::serve::ops
