#pragma once
// One codebook over all EXL3 matrices of a folder, the one that its config.json declares (QC01). A matrix whose marker
// was dropped is sound by itself, so that only the whole pack shows it. Source: exl3.md 2, 10.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/verify/index_check.h"

namespace dsf::verify {

// Each finding with the path of the shard that it belongs to.
std::vector<std::pair<std::string, Finding>> check_codebooks(const Plan& plan, const Structures& structures);

}  // namespace dsf::verify
