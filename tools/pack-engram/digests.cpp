#include "tools/pack-engram/digests.h"

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "dsf/codec/sha256.h"
#include "tools/pack-engram/check.h"

namespace dsf::pack_engram {

Result<Outcome> compare_with_digests(const RecordedFile& recorded) {
  const int64_t start = monotonic_ns();
  const engram::PackedHeader& h = recorded.file.header;
  Outcome out{.file = recorded.file};
  DSF_TRY(const io::Fd fd, open_and_check_header(recorded.file, out));
  if (!fd.valid()) return out;
  io::advise_sequential(fd);
  std::vector<std::byte> block;
  uint64_t bad_blocks = 0;
  for (uint64_t row = h.lo, i = 0; row < h.hi; row += recorded.block_rows, ++i) {
    if (cli::stop_requested()) return fail(Code::kLocal, recorded.file.path.string(), "stopped by a signal", "run it again", "stopped");
    const uint64_t n = std::min(recorded.block_rows, h.hi - row);
    block.resize(n * h.row_bytes);
    const uint64_t at = engram::kPackedHeaderBytes + (row - h.lo) * h.row_bytes;
    DSF_OK(io::read_at(fd, at, block));
    out.block_sha256.push_back(codec::sha256(block).hex());
    out.rows_compared += n;
    if (out.block_sha256.back() != recorded.block_sha256[i] && bad_blocks++ == 0) out.first_bad_row = row;
    io::drop_page_cache(fd, at, block.size());
  }
  out.status = bad_blocks == 0 ? "ok" : "content";
  if (bad_blocks > 0)
    out.what = std::to_string(bad_blocks) + " of " + std::to_string(recorded.block_sha256.size()) + " blocks differ from the record, first at row " + std::to_string(out.first_bad_row);
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return out;
}

}  // namespace dsf::pack_engram
