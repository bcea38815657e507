#pragma once
// Digests of equal pieces of a file: which pieces are damaged, and lists of them beside a pin. Source: hub.md 4.2, 5.1.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "tools/verify/evidence.h"
#include "tools/verify/report.h"

namespace dsf::verify {

// Indices of the pieces that differ from the list, or that the file is too short for. Errors: kLocal, kMissing.
Result<std::vector<uint64_t>> bad_pieces(const std::filesystem::path& file, const Expected& expected);
// First, last and fourteen pieces drawn from the seed: true when all of them are as listed.
Result<bool> sample_pieces(const std::filesystem::path& file, const Expected& expected, uint64_t seed);

// plan.pin again as plan.write_pieces, with a list for every file larger than one piece; the lists go beside it. Files
// must be the pinned ones. Errors: kUsage for a deployment of several pins, kLocal.
Result<void> write_pieces(const Plan& plan);

}  // namespace dsf::verify
