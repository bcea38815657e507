#include "dsf/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace dsf::io {

Error errno_error(const fs::path& path, std::string_view action) {
  const int e = errno;
  Error out{Code::kLocal, path.string(), std::string(action) + ": " + std::strerror(e), "", "io"};
  if (e == ENOENT || e == ENOTDIR) {
    out.code = Code::kMissing;
    out.cls = "missing";
  } else if (e == ENOSPC || e == EDQUOT || e == EFBIG) {
    out.fix = "free disk space or choose another folder";
    out.cls = "disk_full";
  } else if (e == EROFS) {
    out.fix = "the file system is read-only; choose another folder";
    out.cls = "read_only";
  } else if (e == EACCES || e == EPERM) {
    out.fix = "check the permissions";
    out.cls = "permission";
  }
  return out;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}
Fd::Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)), path_(std::move(o.path_)) {}
Fd& Fd::operator=(Fd&& o) noexcept {
  if (this != &o) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(o.fd_, -1);
    path_ = std::move(o.path_);
  }
  return *this;
}

Result<void> Fd::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0) return fail(errno_error(path_, "cannot close"));
  return {};
}

Result<Fd> open_read(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(errno_error(path, "cannot open"));
  struct stat st{};
  if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    ::close(fd);
    return fail(Code::kMissing, path.string(), "is a folder, a file was expected", {}, "missing");
  }
  return Fd(fd, path);
}

Result<Fd> open_write(const fs::path& path, bool keep_content) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (keep_content ? 0 : O_TRUNC), 0644);
  if (fd < 0) return fail(errno_error(path, "cannot create"));
  return Fd(fd, path);
}

Result<uint64_t> file_size(const Fd& fd) {
  struct stat st{};
  if (fstat(fd.get(), &st) != 0) return fail(errno_error(fd.path(), "cannot stat"));
  return static_cast<uint64_t>(st.st_size);
}

Result<uint64_t> file_size(const fs::path& path) {
  struct stat st{};
  if (stat(path.c_str(), &st) != 0) return fail(errno_error(path, "cannot stat"));
  return static_cast<uint64_t>(st.st_size);
}

Result<void> read_at(const Fd& fd, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno_error(fd.path(), "read failed"));
    if (n == 0)
      return fail(Code::kContent, fd.path().string(), "ends at byte " + std::to_string(offset) + ", " + std::to_string(out.size()) +
                  " bytes short", "fetch it again", "truncated");
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<void> write_at(const Fd& fd, uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd.get(), data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno_error(fd.path(), "write failed"));
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<void> write_all(const Fd& fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd.get(), data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno_error(fd.path(), "write failed"));
    data = data.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> sync(const Fd& fd) {
  if (::fsync(fd.get()) != 0) return fail(errno_error(fd.path(), "fsync failed"));
  return {};
}

Result<std::string> read_text(const fs::path& path, uint64_t max_bytes) {
  DSF_TRY(const Fd fd, open_read(path));
  std::string out;
  std::string block(size_t{1} << 16, '\0');
  // Read until end, not until the stat size: pipes and /proc files have none.
  while (true) {
    const ssize_t n = ::read(fd.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno_error(path, "read failed"));
    if (n == 0) return out;
    out.append(block.data(), static_cast<size_t>(n));
    if (out.size() > max_bytes)
      return fail(Code::kContent, path.string(), "larger than " + std::to_string(max_bytes) + " bytes", {}, "too_large");
  }
}

Result<void> preallocate(const Fd& fd, uint64_t bytes) {
  if (bytes == 0) return {};
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return {};
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return {};
  return fail(errno_error(fd.path(), "cannot reserve " + std::to_string(bytes) + " bytes"));
}

void advise_sequential(const Fd& fd) { (void)posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL); }
void drop_page_cache(const Fd& fd, uint64_t offset, uint64_t n_bytes) {
  (void)posix_fadvise(fd.get(), static_cast<off_t>(offset), static_cast<off_t>(n_bytes), POSIX_FADV_DONTNEED);
}

Result<FileLock> FileLock::acquire(const fs::path& path) {
  DSF_TRY(Fd fd, open_write(path, true));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return fail(Code::kBusy, path.string(), "another process holds the lock", "wait for it to end", "locked");
    return fail(errno_error(path, "cannot lock"));
  }
  FileLock lock;
  lock.fd_ = std::move(fd);
  return lock;
}

}  // namespace dsf::io
