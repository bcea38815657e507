#pragma once
// Checking packed files against the digests noted while packing: needs no source. Source: engram.md 7.3.
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

// Every block, or plan.sample_rows blocks drawn by plan.seed. A wrong file is an Outcome. Errors: kLocal.
Result<Outcome> compare_with_digests(const PackFile& file, const engram::RecordedPack& recorded, const Plan& plan);

}  // namespace dsf::pack_engram
