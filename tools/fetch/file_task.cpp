#include "tools/fetch/file_task.h"

#include <sys/stat.h>

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/json/json.h"

namespace dsf::fetch {
namespace {

constexpr size_t kReadBytes = 1 << 20;

uint64_t default_piece(uint64_t size) { return size < 8 * kGiB ? 16 * kMiB : 64 * kMiB; }

Result<codec::Digest> digest_of(const io::Fd& fd, uint64_t begin, uint64_t end) {
  codec::Sha256 hash;
  std::vector<std::byte> buffer(kReadBytes);
  for (uint64_t at = begin; at < end;) {
    const std::span<std::byte> bytes(buffer.data(), static_cast<size_t>(std::min<uint64_t>(kReadBytes, end - at)));
    DSF_OK(io::read_at(fd, at, bytes));
    hash.update(bytes);
    at += bytes.size();
  }
  return hash.finish();
}

// What must be equal for a part to be continued. Not the commit: the same content may be wanted at a later one.
std::string journal_header(const Wanted& w, uint64_t piece_bytes) {
  json::Value v = json::Value::object();
  v.set("path", w.entry.path);
  v.set("size", w.entry.size);
  v.set("digest", w.etag());
  v.set("piece", piece_bytes);
  return json::dump(v);
}

mode_t default_mode() {
  static const mode_t mask = [] {
    const mode_t m = ::umask(0);
    ::umask(m);
    return m;
  }();
  return 0666 & ~mask;
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
  DSF_TRY(journal, Journal::open(target.parts() / (id + ".journal"), journal_header(wanted, piece_bytes)));
  for (const auto& [index, digest] : journal->claims()) {
    if (index >= n_pieces) continue;
    if (stop()) return fail(Code::kLocal, wanted.entry.path, "stopped", "", "stopped");
    DSF_TRY(const codec::Digest got, digest_of(part, piece_begin(index), piece_end(index)));
    if (got != digest) continue;  // torn by a crash: fetched again
    pieces[static_cast<size_t>(index)] = Piece::kDone;
    resumed_bytes += piece_end(index) - piece_begin(index);
  }
  result.resumed_bytes = resumed_bytes;
  return {};
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

Result<void> FileTask::finish(const Target& target, const std::string& commit, FileResult& r) {
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
