#include "tools/bench/raw_file.h"

#include <memory>
#include <string_view>

#include "dsf/base/numeric.h"

namespace dsf::bench {
namespace {
constexpr size_t kMaxRawBytes = size_t{8} << 30;  // expanded; 144 requests of 64 tokens are 2 MiB
}

Result<std::unique_ptr<RawWriter>> RawWriter::create(const std::filesystem::path& path) {
  DSF_TRY(io::Fd fd, io::open_write(path));
  return std::unique_ptr<RawWriter>(new RawWriter(std::move(fd)));
}

Result<void> RawWriter::write(const json::Value& record) {
  if (!frame_) frame_.emplace([this](std::span<const std::byte> data) { return io::write_all(fd_, data); });
  const std::string line = json::dump(record) + "\n";
  DSF_OK(frame_->write(as_bytes(line)));
  return frame_->flush();
}

Result<void> RawWriter::end_frame() {
  if (!frame_) return {};
  DSF_OK(frame_->finish());
  frame_.reset();
  return {};
}

Result<void> RawWriter::close() {
  DSF_OK(end_frame());
  DSF_OK(io::sync(fd_));
  return fd_.close();
}

Result<RawFile> read_raw(const std::filesystem::path& path) {
  const std::string subject = path.string();
  DSF_TRY(const io::Mmap map, io::Mmap::open(path));
  DSF_TRY(const codec::ZstdPrefix expanded, codec::zstd_decompress_prefix(map.bytes(), subject, kMaxRawBytes));
  RawFile out;
  out.cut = !expanded.complete;
  std::string_view rest(expanded.text);
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) {
      out.cut = true;
      break;
    }
    DSF_TRY(json::Value record, json::parse(rest.substr(0, end), subject + ":" + std::to_string(line)));
    out.records.push_back(std::move(record));
    rest.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace dsf::bench
