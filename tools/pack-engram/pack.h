#pragma once
// Writing packed files from the source tables. Source: engram.md 6.5.
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

// Writes one file: part file with a journal, fsync, rename; goes on where a stopped or killed run of the same source
// left off. Memory: two blocks of records and one of source rows. Errors: kLocal (disk, stopped by a signal: the part
// stays and is gone on with), and those of the source (nothing stays).
Result<Outcome> pack_file(const PackFile& file, const Source& source);

// Removes temporary files that a killed run left in dir, other than parts to go on with; those too with force. Only
// under the folder's lock.
Result<void> remove_leftovers(const std::filesystem::path& dir, bool force);

}  // namespace dsf::pack_engram
