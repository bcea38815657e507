#include "tools/verify/pieces.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "dsf/base/numeric.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"

namespace dsf::verify {
namespace {

constexpr size_t kSampled = 16;

Result<codec::Digest> digest_of(const io::Fd& fd, uint64_t size, uint64_t piece_bytes, uint64_t index,
                                std::vector<std::byte>& buffer) {
  const uint64_t at = index * piece_bytes;
  buffer.resize(at < size ? std::min(piece_bytes, size - at) : 0);
  DSF_OK(io::read_at(fd, at, buffer));
  io::drop_page_cache(fd, at, buffer.size());
  return codec::sha256(buffer);
}

// Those of the given pieces that are not as listed.
Result<std::vector<uint64_t>> differing(const std::filesystem::path& file, const Expected& expected,
                                        const std::vector<uint64_t>& which) {
  DSF_TRY(const io::Fd fd, io::open_read(file));
  DSF_TRY(const uint64_t size, io::file_size(fd));
  std::vector<std::byte> buffer;
  std::vector<uint64_t> out;
  for (const uint64_t i : which) {
    if (cli::stop_requested())
      return fail(Code::kLocal, file.string(), "stopped by a signal", "run it again", "stopped");
    DSF_TRY(const codec::Digest digest, digest_of(fd, size, expected.piece_bytes, i, buffer));
    if (digest != expected.pieces[i]) out.push_back(i);
  }
  return out;
}

std::vector<uint64_t> all_of(const Expected& expected) {
  std::vector<uint64_t> out(expected.pieces.size());
  std::iota(out.begin(), out.end(), uint64_t{0});
  return out;
}

}  // namespace

Result<std::vector<uint64_t>> bad_pieces(const std::filesystem::path& file, const Expected& expected) {
  return differing(file, expected, all_of(expected));
}

Result<bool> sample_pieces(const std::filesystem::path& file, const Expected& expected, uint64_t seed) {
  std::vector<uint64_t> which = all_of(expected);
  if (which.size() > kSampled) {
    std::mt19937_64 rng(seed);
    std::shuffle(which.begin() + 1, which.end() - 1, rng);
    std::swap(which[1], which.back());
    which.resize(kSampled);
    std::sort(which.begin(), which.end());
  }
  DSF_TRY(const std::vector<uint64_t> wrong, differing(file, expected, which));
  return wrong.empty();
}

Result<void> write_pieces(const Plan& plan) {
  DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(plan.pin));
  if (deployment.pins.size() != 1)
    return fail(Code::kUsage, plan.pin.string(), "is a deployment of several pins", "pass one of them with its folder",
                "usage");
  manifest::Pin pin = deployment.pins.front().pin;
  auto folder = plan.write_pieces;
  folder.replace_extension(".pieces");
  std::vector<std::byte> buffer;
  for (manifest::PinFile& f : pin.files) {
    if (!f.size || *f.size <= plan.piece_bytes) continue;
    DSF_TRY(const io::Fd fd, io::open_read(plan.dir / f.path));
    std::string raw;
    for (uint64_t i = 0; i < ceil_div(*f.size, plan.piece_bytes); ++i) {
      DSF_TRY(const codec::Digest digest, digest_of(fd, *f.size, plan.piece_bytes, i, buffer));
      raw += as_text(digest.bytes);
    }
    f.pieces = manifest::PieceDigests{plan.piece_bytes, codec::sha256(raw).hex()};
    DSF_OK(io::make_dirs(folder));
    DSF_OK(io::write_file_atomic(folder / (f.sha256 + ".bin"), raw));
  }
  return io::write_file_atomic(plan.write_pieces, manifest::write(pin));
}

}  // namespace dsf::verify
