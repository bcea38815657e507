#pragma once
// Comparing a packed file with its source tables. Source: engram.md 7.3.
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

struct Comparison {
  int64_t sample_rows = 0;  // 0: every row
  uint64_t seed = 0;
  bool stop_at_first = false;  // the answer is enough, not the extent
  bool digests = false;        // also fill Outcome::block_sha256 (whole comparisons)
};
// Reads and compares; a wrong file is an Outcome. Errors: kLocal (reading, stopped by a signal), and those of the
// source.
Result<Outcome> compare_with_source(const PackFile& file, const Source& source, const Comparison& how);

// Opens the file and compares header, reserved bytes and size with what is expected. On a finding the outcome's status
// and text are set and no descriptor is returned. Errors: kLocal.
Result<io::Fd> open_and_check_header(const PackFile& file, Outcome& outcome);

}  // namespace dsf::pack_engram
