#include "tools/fetch/file_task.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/json/json.h"

namespace dsf::fetch {
namespace {

constexpr size_t kReadBytes = 1 << 20;

uint64_t default_piece(uint64_t size) { return size < 8 * kGiB ? 16 * kMiB : 64 * kMiB; }

Result<uint32_t> crc_of(const io::Fd& fd, uint64_t begin, uint64_t end) {
  uint32_t crc = 0;
  std::vector<std::byte> buffer(kReadBytes);
  for (uint64_t at = begin; at < end;) {
    const std::span<std::byte> bytes(buffer.data(), static_cast<size_t>(std::min<uint64_t>(kReadBytes, end - at)));
    DSF_OK(io::read_at(fd, at, bytes));
    crc = codec::crc32c(bytes, crc);
    at += bytes.size();
  }
  return crc;
}

// What must be equal for a part to be continued. Not the commit: the same content may be wanted at a later one.
std::string journal_header(const Wanted& w, uint64_t piece_bytes) {
  json::Value v = json::Value::object();
  v.set("path", w.entry.path);
  v.set("size", w.entry.size);
  v.set("digest", w.etag());
  v.set("piece", piece_bytes);
  v.set("piece_hash", "crc32c");
  return json::dump(v);
}

}  // namespace

FileTask::FileTask(const Wanted& w, const std::string& repo, const std::string& commit, const EngineOptions& options)
    : wanted(w), size(w.entry.size), source(repo, commit, w.entry), id(part_id(w.entry.path, w.etag())) {
  const bool whole = size <= options.whole_file_bytes;
  piece_bytes = whole                     ? std::max<uint64_t>(size, 1)
                : options.piece_bytes > 0 ? options.piece_bytes
                                          : default_piece(size);
  n_pieces = ceil_div(size, piece_bytes);
  result.wanted = &w;
}

Result<void> FileTask::prepare(const Target& target, const std::function<bool()>& stop) {
  started_ns = monotonic_ns();
  pieces.assign(static_cast<size_t>(n_pieces), Piece::kFree);
  DSF_TRY(part, target.open_part(id, size));
  if (n_pieces <= 1) return {};
  DSF_TRY(journal, codec::Journal::open(target.parts() / (id + ".journal"), journal_header(wanted, piece_bytes)));
  for (const auto& [index, digest] : journal->claims()) {
    if (index >= n_pieces) continue;
    if (stop()) return fail(Code::kLocal, wanted.entry.path, "stopped", "", "stopped");
    DSF_TRY(const uint32_t got, crc_of(part, piece_begin(index), piece_end(index)));
    if (piece_word(got) != digest) continue;  // torn by a crash: fetched again
    pieces[static_cast<size_t>(index)] = Piece::kDone;
    resumed_bytes += piece_end(index) - piece_begin(index);
  }
  result.resumed_bytes = resumed_bytes;
  return {};
}

// A claim for resuming, not a proof of content: CRC32C finds a torn piece, the file's own SHA-256 decides in the end.
std::string piece_word(uint32_t crc) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", crc);
  return text.data();
}

Result<void> FileTask::hash_piece(uint64_t piece) {
  std::vector<std::byte> buffer(kReadBytes);
  for (uint64_t at = piece_begin(piece); at < piece_end(piece);) {
    const std::span<std::byte> bytes(buffer.data(),
                                     static_cast<size_t>(std::min<uint64_t>(kReadBytes, piece_end(piece) - at)));
    DSF_OK(io::read_at(part, at, bytes));
    hash.update(bytes);
    at += bytes.size();
  }
  return {};
}

Result<void> FileTask::finish(const Target& target, const std::string& commit, bool verify_stored, FileResult& r) {
  r.sha256 = hash.finish().hex();
  const auto path = target.parts() / (id + ".part");
  if (!wanted.entry.git_sha1.empty()) {
    DSF_TRY(r.git_sha1, codec::git_blob_sha1_file(path));
  }
  r.host = source.host();
  DSF_OK(compare(wanted, r.sha256, r.git_sha1, wanted.entry.path));
  DSF_OK(io::sync(part));
  if (::fchmod(part.get(), default_mode()) != 0) return fail(io::errno_error(path, "cannot set the mode"));
  // What CUDA calls free memory on unified-memory machines does not count cached files as free.
  io::drop_page_cache(part, 0, size);
  if (verify_stored) {
    // The cache was dropped: these bytes come from the device.
    DSF_TRY(const codec::Digest stored, codec::sha256_file(path));
    DSF_OK(compare_stored(r.sha256, stored.hex(), wanted.entry.path));
    io::drop_page_cache(part, 0, size);
    r.stored = true;
  }
  DSF_OK(part.close());  // no descriptor outlives the rename: a late writer must not reach the final file
  DSF_OK(target.commit(id, wanted.entry.path, commit, wanted.etag()));
  journal.reset();
  DSF_OK(io::remove_file(target.parts() / (id + ".journal")));
  r.seconds = static_cast<double>(monotonic_ns() - started_ns) * 1e-9;
  r.ok = true;
  return {};
}

Result<void> FileTask::start_over() {
  std::fill(pieces.begin(), pieces.end(), Piece::kFree);
  frontier = 0;
  sequential = true;
  hash = codec::Sha256();
  return journal ? journal->restart() : Result<void>();
}

void FileTask::remove_part(const Target& target, bool keep_bad) const {
  const auto path = target.parts() / (id + ".part");
  if (keep_bad) {
    (void)io::rename_file(path, target.parts() / (id + ".bad"));
  } else {
    (void)io::remove_file(path);
  }
  (void)io::remove_file(target.parts() / (id + ".journal"));
}

}  // namespace dsf::fetch
