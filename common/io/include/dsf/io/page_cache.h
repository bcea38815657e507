#pragma once
// Keeping the page cache small behind a large write. On unified-memory machines the file pages that a download leaves
// behind are counted as used memory by the GPU driver. Where a file system cannot do it nothing happens; any thread.
#include <cstdint>

#include "dsf/io/file.h"

namespace dsf::io {

// Starts writing the dirty pages of this range to the device and returns at once.
void start_writeback(const Fd& fd, uint64_t offset, uint64_t n_bytes);
// Waits until the range is written and then drops its pages: dirty pages cannot be dropped. Errors: kLocal when the device
// could not write; that must not be ignored, a later fsync of this descriptor need not say it again.
Result<void> drop_written(const Fd& fd, uint64_t offset, uint64_t n_bytes);
// Bytes of the file that are in the page cache now. Errors: kLocal.
Result<uint64_t> resident_bytes(const fs::path& path);

}  // namespace dsf::io
