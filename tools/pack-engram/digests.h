#pragma once
// Checking packed files against the digests noted while packing: needs no source. Source: engram.md 7.3.
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

// What the folder's record says of one file.
struct RecordedFile {
  PackFile file;
  uint64_t block_rows = 0;
  std::vector<std::string> block_sha256;
};
// A wrong file is an Outcome. Errors: kLocal.
Result<Outcome> compare_with_digests(const RecordedFile& recorded);

}  // namespace dsf::pack_engram
