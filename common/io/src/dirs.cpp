#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dsf/io/file.h"

namespace dsf::io {

namespace {
fs::path or_here(const fs::path& dir) { return dir.empty() ? fs::path(".") : dir; }
Error code_error(const fs::path& path, std::string_view action, const std::error_code& ec) {
  errno = ec.value();
  return errno_error(path, action);
}
}  // namespace

Result<void> sync_dir(const fs::path& dir) {
  const int fd = ::open(or_here(dir).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail(errno_error(dir, "cannot open folder"));
  const Fd owner(fd, dir);
  if (::fsync(fd) != 0 && errno != EINVAL) return fail(errno_error(dir, "fsync failed"));  // some network file systems say EINVAL
  return {};
}

Result<uint64_t> free_bytes(const fs::path& existing_dir) {
  struct statvfs st{};
  if (::statvfs(or_here(existing_dir).c_str(), &st) != 0) return fail(errno_error(existing_dir, "cannot read free space"));
  return uint64_t{st.f_bavail} * uint64_t{st.f_frsize};
}

Result<void> make_dirs(const fs::path& dir) {
  std::error_code ec;
  fs::create_directories(or_here(dir), ec);
  if (ec) return fail(code_error(dir, "cannot create folder", ec));
  return {};
}

Result<void> remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(errno_error(path, "cannot remove"));
  return {};
}

Result<void> rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return fail(errno_error(to, "cannot rename into place"));
  return {};
}

Result<std::vector<std::string>> list_files(const fs::path& dir) {
  std::error_code ec;
  std::vector<std::string> out;
  fs::recursive_directory_iterator it(dir, ec), end;
  if (ec) return fail(code_error(dir, "cannot list", ec));
  while (it != end) {
    if (it->is_regular_file(ec)) out.push_back(it->path().lexically_relative(dir).generic_string());
    it.increment(ec);
    if (ec) return fail(code_error(dir, "cannot list", ec));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace dsf::io
