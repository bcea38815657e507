#include "tools/pack-engram/digests.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "tools/pack-engram/check.h"

namespace dsf::pack_engram {
namespace {

// Files draw different blocks from one seed, so that a repeated pattern of damage is not missed in both.
std::vector<uint64_t> chosen_blocks(const engram::RecordedPack& recorded, const Plan& plan) {
  const uint64_t n = recorded.block_sha256.size();
  std::vector<uint64_t> out(n);
  std::iota(out.begin(), out.end(), uint64_t{0});
  const auto wanted = static_cast<uint64_t>(plan.sample_rows);
  if (wanted == 0 || n <= std::max<uint64_t>(wanted, 2)) return out;
  std::mt19937_64 rng(plan.seed ^ (recorded.header.layer_id << 32) ^ recorded.header.lo);
  std::shuffle(out.begin() + 1, out.end() - 1, rng);
  std::swap(out[1], out.back());
  out.resize(std::max<uint64_t>(wanted, 2));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<Outcome> compare_with_digests(const PackFile& file, const engram::RecordedPack& recorded, const Plan& plan) {
  const int64_t start = monotonic_ns();
  Outcome out{.file = file};
  DSF_TRY(const io::Fd fd, open_and_check_header(file, out));
  if (!fd.valid()) return out;
  io::advise_sequential(fd);
  uint64_t bad_blocks = 0;
  const uint64_t rows = recorded.header.hi - recorded.header.lo;
  const std::vector<uint64_t> blocks = chosen_blocks(recorded, plan);
  for (const uint64_t i : blocks) {
    if (cli::stop_requested())
      return fail(Code::kLocal, file.path.string(), "stopped by a signal", "run it again", "stopped");
    DSF_TRY(const bool same, engram::block_matches(fd, recorded, i));
    out.rows_compared += std::min(recorded.block_rows, rows - i * recorded.block_rows);
    if (!same && bad_blocks++ == 0) out.first_bad_row = recorded.header.lo + i * recorded.block_rows;
  }
  out.status = bad_blocks == 0 ? "ok" : "content";
  if (bad_blocks > 0)
    out.what = std::to_string(bad_blocks) + " of " + std::to_string(blocks.size()) +
               " blocks differ from the record, first at row " + std::to_string(out.first_bad_row);
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return out;
}

}  // namespace dsf::pack_engram
