#pragma once
// One instruction set's version of the trellis search; viterbi_kernel.h holds the one source, compiled once per set.
#include <cstddef>
#include <cstdint>

namespace dsf::exl3::detail {

// Search over a pair of tiles at once, so that every codebook value is loaded once for two uses.
//   values   codebook in the order of arrange_values(bits)
//   targets  [2][256]
//   scratch  search_scratch_floats(bits) floats, content of no meaning before and after
//   states   [2][256]
using SearchPair = void (*)(int bits, const float* values, const float* targets, float* scratch, uint16_t* states);

size_t search_scratch_floats(int bits);

void search_pair_baseline(int bits, const float* values, const float* targets, float* scratch, uint16_t* states);
#if defined(__x86_64__)
void search_pair_avx2(int bits, const float* values, const float* targets, float* scratch, uint16_t* states);
#endif

}  // namespace dsf::exl3::detail
