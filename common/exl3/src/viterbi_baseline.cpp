// The trellis search for every machine.
#include "viterbi.h"

namespace dsf::exl3::detail {
namespace {
#include "viterbi_kernel.h"
}  // namespace

size_t search_scratch_floats(int bits) {
  constexpr long kFloats[] = {scratch_floats<1>(), scratch_floats<2>(), scratch_floats<3>(), scratch_floats<4>(),
                              scratch_floats<5>(), scratch_floats<6>(), scratch_floats<7>(), scratch_floats<8>()};
  return static_cast<size_t>(kFloats[bits - 1]);
}

void search_pair_baseline(int bits, const float* values, const float* targets, float* scratch, uint16_t* states) {
  search_any(bits, values, targets, scratch, states);
}

}  // namespace dsf::exl3::detail
