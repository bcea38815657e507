#include "dsf/exl3/quantize.h"

#include <doctest/doctest.h>

#include <ctime>
#include <cmath>
#include <string>

#include "exl3_test_util.h"

using namespace dsf::exl3;

namespace {

// Sum of twelve uniforms: close enough to a Gaussian, and without the tail beyond the codebook that would rule at wide widths.
std::vector<float> gaussian(size_t n, uint32_t seed) {
  dsf::exl3::test::Lcg lcg(seed);
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(lcg.next()) / 65536.0f;
    v = sum - 6.0f;
  }
  return out;
}

}  // namespace

TEST_CASE("every width and codebook errs on Gaussian weights as the table of the specification says") {
  for (const Codebook c : {Codebook::kMul1, Codebook::kMcg, Codebook::k3Inst}) {
    for (int bits = 1; bits <= kMaxBits; ++bits) {
      const auto w = gaussian(128 * 128, 40u + static_cast<uint32_t>(bits));
      const auto start = clock();
      auto m = quantize(w, 128, 128, {bits, c, 1, 0});
      const double ms = 1e3*double(clock() - start)/CLOCKS_PER_SEC;
      REQUIRE(m.has_value());
      const double error = relative_error(m->view(), w);
      MESSAGE(codebook_name(c) << " K=" << bits << " error " << error << " want " << expected_error(c, bits) << " ms " << ms);
      CHECK(error < 1.1 * expected_error(c, bits));
      CHECK(error > 0.9 * expected_error(c, bits));
    }
  }
}
