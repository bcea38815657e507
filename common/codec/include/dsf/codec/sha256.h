#pragma once
// SHA-256, SHA-1 and CRC32C. SHA runs in OpenSSL. One Hasher per thread; Digest is a value.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dsf/base/result.h"

namespace dsf::codec {

struct Digest {  // SHA-256
  std::array<std::byte, 32> bytes{};
  std::string hex() const;                                   // 64 lower-case digits
  static std::optional<Digest> from_hex(std::string_view);   // exactly 64 digits
  auto operator<=>(const Digest&) const = default;
};

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> data);
  Digest finish();           // leaves the hasher ready for a new message
  Sha256 clone() const;      // same state, for digests of prefixes

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Digest sha256(std::span<const std::byte> data);
Digest sha256(std::string_view text);
// Streams the file; progress (optional) is called with the bytes of each block and may return false to stop (kLocal "stopped").
Result<Digest> sha256_file(const std::filesystem::path& path, const std::function<bool(uint64_t)>& progress = {});
// Git's blob id: SHA-1 of "blob <size>\0" + content, 40 hex digits. Identifies non-LFS files on the Hub.
std::string git_blob_sha1(std::span<const std::byte> content);
Result<std::string> git_blob_sha1_file(const std::filesystem::path& path);

uint32_t crc32c(std::span<const std::byte> data, uint32_t seed = 0);

}  // namespace dsf::codec
