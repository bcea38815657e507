#include "tile_search.h"

#include <algorithm>

#include "dsf/base/check.h"

namespace dsf::exl3::detail {
namespace {

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

SearchPair search_pair() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return search_pair_avx2;
#endif
  return search_pair_baseline;
}

}  // namespace

TileSearch::TileSearch(Codebook codebook, int bits)
    : bits_(bits), values_(arrange_values(codebook, bits)), search_(search_pair()) {}

void TileSearch::pair(std::span<const float, 512> targets, Scratch& scratch, std::array<TileStates, 2>& states) const {
  DSF_CHECK(scratch.size() == search_scratch_floats(bits_), "scratch of another width");
  std::array<uint16_t, 512> found{};
  search_(bits_, values_.data(), targets.data(), scratch.data(), found.data());
  for (size_t i = 0; i < 2; ++i) std::copy_n(&found[i * 256], 256, states[i].begin());
}

}  // namespace dsf::exl3::detail
