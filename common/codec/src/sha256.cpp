#include "dsf/codec/sha256.h"

#include <openssl/evp.h>

#include <cstring>

#include <vector>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/io/file.h"

namespace dsf::codec {

std::string Digest::hex() const { return to_hex(bytes); }

std::optional<Digest> Digest::from_hex(std::string_view text) {
  const auto raw = dsf::from_hex(text);
  if (!raw || raw->size() != 32) return std::nullopt;
  Digest d;
  std::memcpy(d.bytes.data(), raw->data(), 32);
  return d;
}

struct Sha256::Impl {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(ctx); }
  void start() { DSF_CHECK(EVP_DigestInit_ex(ctx, EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256"); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) { impl_->start(); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> data) {
  DSF_CHECK(EVP_DigestUpdate(impl_->ctx, data.data(), data.size()) == 1, "SHA-256 update");
}

Digest Sha256::finish() {
  Digest d;
  DSF_CHECK(EVP_DigestFinal_ex(impl_->ctx, reinterpret_cast<unsigned char*>(d.bytes.data()), nullptr) == 1, "SHA-256 final");
  impl_->start();
  return d;
}

Sha256 Sha256::clone() const {
  Sha256 out;
  DSF_CHECK(EVP_MD_CTX_copy_ex(out.impl_->ctx, impl_->ctx) == 1, "SHA-256 copy");
  return out;
}

Digest sha256(std::span<const std::byte> data) {
  Sha256 h;
  h.update(data);
  return h.finish();
}
Digest sha256(std::string_view text) { return sha256(as_bytes(text)); }

namespace {
constexpr size_t kBlock = size_t{1} << 20;

// Calls take(block) for every block of the file in order.
template <class Take>
Result<void> for_each_block(const io::Fd& fd, uint64_t size, Take take) {
  std::vector<std::byte> buffer(std::min<uint64_t>(kBlock, std::max<uint64_t>(size, 1)));
  for (uint64_t at = 0; at < size;) {
    const auto block = std::span(buffer).first(std::min<uint64_t>(buffer.size(), size - at));
    DSF_OK(io::read_at(fd, at, block));
    if (!take(block)) return fail(Code::kLocal, fd.path().string(), "stopped", {}, "stopped");
    at += block.size();
  }
  return {};
}
}  // namespace

Result<Digest> sha256_file(const std::filesystem::path& path, const std::function<bool(uint64_t)>& progress) {
  DSF_TRY(const io::Fd fd, io::open_read(path));
  DSF_TRY(const uint64_t size, io::file_size(fd));
  io::advise_sequential(fd);
  Sha256 h;
  DSF_OK(for_each_block(fd, size, [&](std::span<const std::byte> block) {
    h.update(block);
    return !progress || progress(block.size());
  }));
  return h.finish();
}

namespace {
class GitBlob {
 public:
  explicit GitBlob(uint64_t size) {
    DSF_CHECK(EVP_DigestInit_ex(ctx_, EVP_sha1(), nullptr) == 1, "OpenSSL has no SHA-1");
    const std::string head = "blob " + std::to_string(size);
    update(as_bytes(std::string_view(head.c_str(), head.size() + 1)));
  }
  ~GitBlob() { EVP_MD_CTX_free(ctx_); }
  GitBlob(const GitBlob&) = delete;
  GitBlob& operator=(const GitBlob&) = delete;
  void update(std::span<const std::byte> data) { DSF_CHECK(EVP_DigestUpdate(ctx_, data.data(), data.size()) == 1, "SHA-1 update"); }
  std::string finish() {
    std::array<std::byte, 20> out{};
    DSF_CHECK(EVP_DigestFinal_ex(ctx_, reinterpret_cast<unsigned char*>(out.data()), nullptr) == 1, "SHA-1 final");
    return to_hex(out);
  }

 private:
  EVP_MD_CTX* ctx_ = EVP_MD_CTX_new();
};
}  // namespace

std::string git_blob_sha1(std::span<const std::byte> content) {
  GitBlob blob(content.size());
  blob.update(content);
  return blob.finish();
}

Result<std::string> git_blob_sha1_file(const std::filesystem::path& path) {
  DSF_TRY(const io::Fd fd, io::open_read(path));
  DSF_TRY(const uint64_t size, io::file_size(fd));
  GitBlob blob(size);
  DSF_OK(for_each_block(fd, size, [&](std::span<const std::byte> block) {
    blob.update(block);
    return true;
  }));
  return blob.finish();
}

}  // namespace dsf::codec
