#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dsf/io/file.h"

namespace dsf::io {

Result<Mmap> Mmap::open(const fs::path& path) {
  DSF_TRY(const Fd fd, open_read(path));
  DSF_TRY(const uint64_t size, file_size(fd));
  Mmap out;
  if (size == 0) return out;
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return fail(errno_error(path, "cannot map"));
  out.data_ = static_cast<const std::byte*>(p);
  out.size_ = size;
  return out;
}

namespace {
void unmap(const std::byte* data, size_t size) {
  if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
}
}  // namespace

Mmap::~Mmap() { unmap(data_, size_); }
Mmap::Mmap(Mmap&& o) noexcept : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
Mmap& Mmap::operator=(Mmap&& o) noexcept {
  if (this != &o) {
    unmap(data_, size_);
    data_ = std::exchange(o.data_, nullptr);
    size_ = std::exchange(o.size_, 0);
  }
  return *this;
}

namespace {
// madvise wants a page-aligned start; the range is widened to whole pages.
void advise(const std::byte* data, size_t size, size_t offset, size_t n, int advice) {
  if (data == nullptr || offset >= size) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  const size_t end = std::min(size, offset + std::min(n, size - offset));
  (void)::madvise(const_cast<std::byte*>(data) + begin, end - begin, advice);
}
}  // namespace

void Mmap::will_need(size_t offset, size_t n) const { advise(data_, size_, offset, n, MADV_WILLNEED); }
void Mmap::dont_need(size_t offset, size_t n) const { advise(data_, size_, offset, n, MADV_DONTNEED); }
void Mmap::random_access() const { advise(data_, size_, 0, size_, MADV_RANDOM); }

}  // namespace dsf::io
