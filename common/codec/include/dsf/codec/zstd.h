#pragma once
// zstd streams (libzstd). Writer appends to a file descriptor that it does not own; one thread each.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dsf/base/result.h"

namespace dsf::codec {

class ZstdWriter {
 public:
  using Sink = std::function<Result<void>(std::span<const std::byte>)>;
  explicit ZstdWriter(Sink sink, int level = 3);
  ~ZstdWriter();
  ZstdWriter(ZstdWriter&&) noexcept;
  Result<void> write(std::span<const std::byte> data);
  Result<void> flush();   // everything written so far can be decoded
  Result<void> finish();  // ends the frame; write() afterwards is a bug

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whole frames in memory. Errors: kContent when damaged, cut, or larger than max_bytes once expanded.
Result<std::string> zstd_decompress(std::span<const std::byte> data, std::string_view subject, size_t max_bytes = size_t{1} << 30);
// The same, but an end in the middle of a frame is not an error: what a killed writer had flushed is returned.
struct ZstdPrefix {
  std::string text;
  bool complete = false;
};
Result<ZstdPrefix> zstd_decompress_prefix(std::span<const std::byte> data, std::string_view subject, size_t max_bytes = size_t{1} << 30);
std::string zstd_compress(std::span<const std::byte> data, int level = 3);

}  // namespace dsf::codec
