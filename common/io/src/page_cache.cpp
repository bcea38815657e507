#include "dsf/io/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dsf::io {

void start_writeback(const Fd& fd, uint64_t offset, uint64_t n_bytes) {
  (void)::sync_file_range(fd.get(), static_cast<off64_t>(offset), static_cast<off64_t>(n_bytes), SYNC_FILE_RANGE_WRITE);
}

Result<void> drop_written(const Fd& fd, uint64_t offset, uint64_t n_bytes) {
  constexpr unsigned kWait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int rc = ::sync_file_range(fd.get(), static_cast<off64_t>(offset), static_cast<off64_t>(n_bytes), kWait);
  if (rc != 0 && errno != EINVAL && errno != ESPIPE && errno != ENOSYS)
    return fail(errno_error(fd.path(), "writing to the device failed"));
  drop_page_cache(fd, offset, n_bytes);
  return {};
}

Result<uint64_t> resident_bytes(const fs::path& path) {
  DSF_TRY(const Mmap map, Mmap::open(path));
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = map.bytes().size();
  std::vector<unsigned char> pages((size + page - 1) / page);
  if (size == 0) return uint64_t{0};
  // mincore() takes the address without const and writes nothing there.
  if (::mincore(const_cast<std::byte*>(map.bytes().data()), size, pages.data()) != 0)
    return fail(errno_error(path, "cannot ask for resident pages"));
  const auto n = std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  return static_cast<uint64_t>(n) * page;
}

}  // namespace dsf::io
