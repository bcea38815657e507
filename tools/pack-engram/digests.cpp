#include "tools/pack-engram/digests.h"

#include <algorithm>

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "tools/pack-engram/check.h"

namespace dsf::pack_engram {

Result<Outcome> compare_with_digests(const PackFile& file, const engram::RecordedPack& recorded) {
  const int64_t start = monotonic_ns();
  Outcome out{.file = file};
  DSF_TRY(const io::Fd fd, open_and_check_header(file, out));
  if (!fd.valid()) return out;
  io::advise_sequential(fd);
  uint64_t bad_blocks = 0;
  const uint64_t rows = recorded.header.hi - recorded.header.lo;
  for (uint64_t i = 0; i < recorded.block_sha256.size(); ++i) {
    if (cli::stop_requested()) return fail(Code::kLocal, file.path.string(), "stopped by a signal", "run it again", "stopped");
    DSF_TRY(const bool same, engram::block_matches(fd, recorded, i));
    out.rows_compared += std::min(recorded.block_rows, rows - i * recorded.block_rows);
    if (!same && bad_blocks++ == 0) out.first_bad_row = recorded.header.lo + i * recorded.block_rows;
  }
  out.status = bad_blocks == 0 ? "ok" : "content";
  if (bad_blocks > 0)
    out.what = std::to_string(bad_blocks) + " of " + std::to_string(recorded.block_sha256.size()) + " blocks differ from the record, first at row " + std::to_string(out.first_bad_row);
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return out;
}

}  // namespace dsf::pack_engram
