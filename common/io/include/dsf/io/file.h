#pragma once
// Files as this project touches them: whole reads, reads at an offset, memory maps, atomic replacement, locks, free space,
// page-cache advice. Every function reports errno in words with the path. Objects are movable, not copyable; one owner.
// Reads at an offset of one Fd may run on several threads.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::io {

namespace fs = std::filesystem;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd, fs::path path = {}) : fd_(fd), path_(std::move(path)) {}
  ~Fd();
  Fd(Fd&& o) noexcept;
  Fd& operator=(Fd&& o) noexcept;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  const fs::path& path() const { return path_; }
  Result<void> close();  // reports the error that a destructor would swallow

 private:
  int fd_ = -1;
  fs::path path_;
};

// Errors: kMissing when absent, kLocal otherwise.
Result<Fd> open_read(const fs::path& path);
// Creates or truncates unless keep; mode 0644.
Result<Fd> open_write(const fs::path& path, bool keep_content = false);
Result<uint64_t> file_size(const Fd& fd);
Result<uint64_t> file_size(const fs::path& path);
// Exactly out.size() bytes at offset; kContent when the file ends before.
Result<void> read_at(const Fd& fd, uint64_t offset, std::span<std::byte> out);
Result<void> write_at(const Fd& fd, uint64_t offset, std::span<const std::byte> data);
Result<void> write_all(const Fd& fd, std::span<const std::byte> data);
Result<void> sync(const Fd& fd);
Result<void> sync_dir(const fs::path& dir);

// Whole file, refused (kContent) beyond max_bytes.
Result<std::string> read_text(const fs::path& path, uint64_t max_bytes = uint64_t{1} << 30);

// Read-only mapping of a whole file; views into it die with it. An empty file maps to an empty span.
class Mmap {
 public:
  static Result<Mmap> open(const fs::path& path);
  Mmap() = default;
  ~Mmap();
  Mmap(Mmap&& o) noexcept;
  Mmap& operator=(Mmap&& o) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // madvise on a byte range of the mapping; best effort.
  void will_need(size_t offset, size_t n) const;
  void dont_need(size_t offset, size_t n) const;
  void random_access() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes beside the target and renames over it in commit(): old file or whole new one. Without commit() the temporary file goes.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const fs::path& target);
  AtomicFile(AtomicFile&& o) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();
  const Fd& fd() const { return fd_; }
  const fs::path& temporary() const { return temporary_; }
  Result<void> write(std::span<const std::byte> data);
  Result<void> commit();  // fsync, rename, fsync of the folder

 private:
  AtomicFile() = default;
  Fd fd_;
  fs::path target_, temporary_;
};
Result<void> write_file_atomic(const fs::path& target, std::string_view content);

// Exclusive advisory lock on a file that it creates; released by the destructor. Errors: kBusy when another process holds it.
class FileLock {
 public:
  static Result<FileLock> acquire(const fs::path& path);

 private:
  Fd fd_;
};

Result<uint64_t> free_bytes(const fs::path& existing_dir);
Result<void> make_dirs(const fs::path& dir);
Result<void> remove_file(const fs::path& path);     // absent is fine
Result<void> rename_file(const fs::path& from, const fs::path& to);
// Regular files below dir (sorted, relative, '/' separators); symbolic links to files count, links to folders are not followed.
Result<std::vector<std::string>> list_files(const fs::path& dir);
// Reserves blocks so that a full disk shows now. kLocal when there is no room; fine when the file system cannot.
Result<void> preallocate(const Fd& fd, uint64_t bytes);
// Page-cache advice, best effort.
void advise_sequential(const Fd& fd);
void drop_page_cache(const Fd& fd, uint64_t offset, uint64_t n_bytes);

// Error for the current errno; subject is the path. ENOSPC, EROFS, EACCES get their fix line.
Error errno_error(const fs::path& path, std::string_view action);

}  // namespace dsf::io
