// The trellis search for machines with AVX2.
#include "viterbi.h"

namespace dsf::exl3::detail {
namespace {
#include "viterbi_kernel.h"
}  // namespace

void search_pair_avx2(int bits, const float* values, const float* targets, float* scratch, uint16_t* states) {
  search_any(bits, values, targets, scratch, states);
}

}  // namespace dsf::exl3::detail
