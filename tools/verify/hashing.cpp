#include "tools/verify/hashing.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"

namespace dsf::verify {
namespace {

constexpr uint64_t kReadBytes = kMiB;       // one read; the digest of a block runs while the kernel reads ahead
constexpr uint64_t kDropBytes = 32 * kMiB;  // page cache behind the cursor is given back in steps of this

struct Identity {
  off_t size;
  ino_t inode;
  timespec modified, changed;
  bool operator==(const Identity& o) const {
    const auto same = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    return size == o.size && inode == o.inode && same(modified, o.modified) && same(changed, o.changed);
  }
};
Result<Identity> identity(const io::Fd& fd) {
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail(io::errno_error(fd.path(), "cannot stat"));
  return Identity{st.st_size, st.st_ino, st.st_mtim, st.st_ctim};
}

Result<size_t> read_some(const io::Fd& fd, std::span<std::byte> out, uint64_t offset) {
  while (true) {
    const ssize_t n = ::pread(fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) return fail(io::errno_error(fd.path(), "read failed at byte " + std::to_string(offset)));
  }
}

Result<codec::Digest> hash_one(const std::filesystem::path& path, std::vector<std::byte>& buffer,
                               std::atomic<uint64_t>& done, bool& unstable) {
  DSF_TRY(const io::Fd fd, io::open_read(path));
  DSF_TRY(const Identity before, identity(fd));
  // Clean cached pages go first: what is hashed then comes from the drive, not from the memory of whoever wrote it.
  io::drop_page_cache(fd, 0, 0);
  io::advise_sequential(fd);
  codec::Sha256 hash;
  uint64_t at = 0, dropped = 0;
  while (true) {
    if (cli::stop_requested())
      return fail(Code::kLocal, path.string(), "stopped by a signal", "run it again", "stopped");
    DSF_TRY(const size_t n, read_some(fd, buffer, at));
    if (n == 0) break;
    hash.update(std::span(buffer).first(n));
    at += n;
    done += n;
    if (at - dropped >= kDropBytes) {
      io::drop_page_cache(fd, dropped, at - dropped);
      dropped = at;
    }
  }
  io::drop_page_cache(fd, 0, 0);
  DSF_TRY(const Identity after, identity(fd));
  unstable = !(before == after) || at != static_cast<uint64_t>(before.size);
  return hash.finish();
}

}  // namespace

std::vector<Hashed> hash_files(std::vector<HashJob> jobs, int n_threads, std::atomic<uint64_t>& done_bytes) {
  std::stable_sort(jobs.begin(), jobs.end(), [](const HashJob& a, const HashJob& b) { return a.size > b.size; });
  std::vector<std::optional<Hashed>> results(jobs.size());
  std::atomic<size_t> next{0};
  const auto worker = [&] {
    std::vector<std::byte> buffer(kReadBytes);
    for (size_t i = next++; i < jobs.size(); i = next++) {
      bool unstable = false;
      auto digest = hash_one(jobs[i].path, buffer, done_bytes, unstable);
      results[i].emplace(Hashed{jobs[i].tag, unstable, std::move(digest)});
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t t = 1; t < std::min(jobs.size(), static_cast<size_t>(n_threads)); ++t) threads.emplace_back(worker);
    worker();
  }
  std::vector<Hashed> out;
  for (auto& r : results) out.push_back(std::move(*r));
  return out;
}

}  // namespace dsf::verify
