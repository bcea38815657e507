#pragma once
// One volume file of a bundle: its header, zstd frames and seek table. Source: hub.md 7, zstd seekable format 0.1.
//
// A volume is a plain value once opened; reads at offsets, any thread. All numbers in it are checked against the size
// of the file before they are used. Errors: kContent for malformed bytes, kMissing for an absent file.
#include <filesystem>
#include <string>
#include <vector>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"

namespace dsf::fetch {

struct StoredFrame {
  uint64_t offset = 0, stored = 0;  // bytes in the volume file
  uint64_t raw_begin = 0, raw = 0;  // bytes of the tar stream
};

struct Volume {
  std::filesystem::path path;
  io::Fd fd;
  std::string bundle;  // digest of BUNDLE.json
  uint64_t index = 0, raw_begin = 0, raw_end = 0, bytes = 0;
  std::vector<StoredFrame> frames;

  static Result<Volume> open(const std::filesystem::path& path);
  // The frame's raw bytes, its checksum proved. whole: when given, takes the stored bytes too (for the volume's
  // digest).
  Result<std::string> read(const StoredFrame& frame, codec::Sha256* whole = nullptr) const;
  // SHA-256 of the bytes before the first frame and behind the last one, fed in order around read().
  Result<void> feed_head(codec::Sha256& whole) const;
  Result<void> feed_tail(codec::Sha256& whole) const;
};

std::filesystem::path volume_path(const std::filesystem::path& bundle, uint64_t index);  // X.bundle.000
std::filesystem::path sums_path(const std::filesystem::path& bundle);                    // X.bundle.SHA256SUMS

// Writes one volume: to a .part file, renamed by finish().
class VolumeWriter {
 public:
  static Result<VolumeWriter> create(const std::filesystem::path& path, const std::string& bundle, uint64_t index,
                                     uint64_t raw_begin);
  // Size of the file were it finished after one more frame of so many stored bytes.
  uint64_t size_with(uint64_t stored) const;
  size_t frames() const { return entries_.size() - 1; }
  Result<void> add(std::string_view stored, uint64_t raw);
  Result<codec::Digest> finish();  // fsync, page cache dropped, rename, fsync of the folder

 private:
  VolumeWriter() = default;
  Result<void> put(std::string_view bytes);
  std::filesystem::path path_;
  io::Fd fd_;
  codec::Sha256 hash_;
  uint64_t bytes_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> entries_;  // stored, raw
};

}  // namespace dsf::fetch
