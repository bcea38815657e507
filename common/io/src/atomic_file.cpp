#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"

namespace dsf::io {

Result<AtomicFile> AtomicFile::create(const fs::path& target) {
  static std::atomic<unsigned> serial{0};
  AtomicFile out;
  out.target_ = target;
  // Process id and serial: two writers of one target never share a temporary file; a leading dot keeps it out of *.safetensors globs.
  out.temporary_ = target.parent_path() / ("." + target.filename().string() + "." + std::to_string(::getpid()) + "." +
                                           std::to_string(serial++) + ".tmp");
  DSF_TRY(out.fd_, open_write(out.temporary_));
  return out;
}

AtomicFile::AtomicFile(AtomicFile&& o) noexcept
    : fd_(std::move(o.fd_)), target_(std::move(o.target_)), temporary_(std::exchange(o.temporary_, fs::path{})) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::span<const std::byte> data) { return write_all(fd_, data); }

Result<void> AtomicFile::commit() {
  DSF_OK(sync(fd_));
  DSF_OK(fd_.close());
  DSF_OK(rename_file(temporary_, target_));
  temporary_.clear();
  return sync_dir(target_.parent_path());
}

Result<void> write_file_atomic(const fs::path& target, std::string_view content) {
  DSF_TRY(AtomicFile file, AtomicFile::create(target));
  DSF_OK(file.write(as_bytes(content)));
  return file.commit();
}

}  // namespace dsf::io
