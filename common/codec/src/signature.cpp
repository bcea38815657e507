#include "dsf/codec/signature.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::codec {
namespace {

constexpr size_t kKeyBytes = 32, kSignatureBytes = 64;

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* raw(std::string_view s) { return reinterpret_cast<const unsigned char*>(s.data()); }

Result<Key> read_key(const std::filesystem::path& path, bool with_private) {
  DSF_TRY(const std::string text, io::read_text(path, 64 * kKiB));
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                      BIO_free);
  DSF_CHECK(bio != nullptr, "libcrypto has no memory");
  Key key(nullptr, EVP_PKEY_free);
  if (text.find("PRIVATE KEY") != std::string::npos) {
    // No password prompt: an encrypted key is refused.
    key.reset(PEM_read_bio_PrivateKey(
        bio.get(), nullptr, [](char*, int, int, void*) { return -1; }, nullptr));
  } else if (!with_private) {
    key.reset(PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr));
  }
  if (key == nullptr || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519) {
    return fail(
        Code::kUsage, path.string(),
        std::string("is no Ed25519 ") + (with_private ? "private" : "public") + " key in PEM form",
        with_private ? "make one with openssl genpkey -algorithm ed25519" : "make it with openssl pkey -pubout");
  }
  return key;
}

std::string id_of(EVP_PKEY* key) {
  std::array<unsigned char, kKeyBytes> bytes{};
  size_t n = bytes.size();
  DSF_CHECK(EVP_PKEY_get_raw_public_key(key, bytes.data(), &n) == 1 && n == kKeyBytes, "raw Ed25519 public key");
  return sha256(std::as_bytes(std::span(bytes))).hex().substr(0, 16);
}

std::string message_of(std::string_view domain, const Digest& digest) {
  return std::string(domain) + "\n" + digest.hex() + "\n";
}

std::string base64(const std::array<unsigned char, kSignatureBytes>& bytes) {
  std::array<unsigned char, 4 * ((kSignatureBytes + 2) / 3) + 1> text{};
  const int n = EVP_EncodeBlock(text.data(), bytes.data(), static_cast<int>(bytes.size()));
  return {reinterpret_cast<const char*>(text.data()), static_cast<size_t>(n)};
}

// Exactly 64 bytes in their one canonical spelling.
std::optional<std::array<unsigned char, kSignatureBytes>> signature_bytes(const std::string& text) {
  std::array<unsigned char, 3 * 88 / 4> bytes{};
  if (text.size() != 88 || EVP_DecodeBlock(bytes.data(), raw(text), static_cast<int>(text.size())) != 66)
    return std::nullopt;
  std::array<unsigned char, kSignatureBytes> out{};
  std::copy_n(bytes.begin(), out.size(), out.begin());
  return base64(out) == text ? std::optional(out) : std::nullopt;
}

}  // namespace

Result<std::string> sign_digest(std::string_view domain, const Digest& digest,
                                const std::filesystem::path& private_key) {
  DSF_TRY(const Key key, read_key(private_key, true));
  const std::string message = message_of(domain, digest);
  std::array<unsigned char, kSignatureBytes> bytes{};
  size_t n = bytes.size();
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  DSF_CHECK(context != nullptr && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
                EVP_DigestSign(context.get(), bytes.data(), &n, raw(message), message.size()) == 1 && n == bytes.size(),
            "Ed25519 signing");
  json::Value line = json::Value::object();
  line.set("alg", "ed25519");
  line.set("keyid", id_of(key.get()));
  line.set("sig", base64(bytes));
  return json::dump(line) + "\n";
}

Result<void> check_signature(std::string_view domain, const Digest& digest, std::string_view signature,
                             std::string_view subject, const std::filesystem::path& public_key) {
  DSF_TRY(const Key key, read_key(public_key, false));
  const auto wrong = [&](const std::string& what, const std::string& fix) {
    return fail(Code::kContent, std::string(subject), what, fix, "signature");
  };
  const auto value = json::parse(signature.substr(0, 4096), subject);
  const auto text = [&](std::string_view name) {
    const json::Value* v = value ? value->find(name) : nullptr;
    return v != nullptr && v->is_string() ? v->as_string() : std::string();
  };
  const auto bytes = signature_bytes(text("sig"));
  if (text("alg") != "ed25519" || !bytes) return wrong("is no Ed25519 signature", "sign it again with dsf-fetch sign");
  if (text("keyid") != id_of(key.get()))
    return wrong("is of the key " + text("keyid") + ", wanted " + id_of(key.get()),
                 "get the signature or key that belongs here");
  const std::string message = message_of(domain, digest);
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool good = context != nullptr &&
                    EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
                    EVP_DigestVerify(context.get(), bytes->data(), bytes->size(), raw(message), message.size()) == 1;
  if (!good) return wrong("does not sign this content", "do not use it: it was changed after it was signed");
  return {};
}

Result<std::string> key_id(const std::filesystem::path& path) {
  DSF_TRY(const Key key, read_key(path, false));
  return id_of(key.get());
}

}  // namespace dsf::codec
