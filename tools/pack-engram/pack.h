#pragma once
// Writing packed files from the source tables. Source: engram.md 6.5.
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

// Writes one file: temporary name, fsync, rename. Memory: two blocks of records and one of source rows.
// Errors: kLocal (disk, stopped by a signal), and those of the source. Nothing half-written stays.
Result<Outcome> pack_file(const PackFile& file, const Source& source);

// Removes temporary files that a killed run left in dir. Only under the folder's lock.
Result<void> remove_leftovers(const std::filesystem::path& dir);

}  // namespace dsf::pack_engram
