#pragma once
// Detached Ed25519 signatures over a SHA-256, as one JSON line in a .sig file (libcrypto). Pure functions, any thread.
//
// The signed message is "<domain>\n<64 hex>\n": the domain keeps a signature of one kind of document from being taken
// for another's. Keys are PEM files as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write them.
// Source: hub.md 4.6.
#include <filesystem>
#include <string>
#include <string_view>

#include "dsf/base/result.h"
#include "dsf/codec/sha256.h"

namespace dsf::codec {

inline constexpr std::string_view kPinDomain = "hub-pin-v1";

// {"alg":"ed25519","keyid":"<16 hex>","sig":"<base64>"} and a newline. Errors: kMissing/kLocal (key file), kUsage (not
// an Ed25519 private key).
Result<std::string> sign_digest(std::string_view domain, const Digest& digest,
                                const std::filesystem::path& private_key);

// signature: the text of a .sig file, subject its name for errors. Errors: kContent "signature" (malformed, of another
// key, or not of this digest), kMissing/kLocal (key file), kUsage (not an Ed25519 public key).
Result<void> check_signature(std::string_view domain, const Digest& digest, std::string_view signature,
                             std::string_view subject, const std::filesystem::path& public_key);

// First 16 hex digits of the SHA-256 of the raw public key, from either kind of key file.
Result<std::string> key_id(const std::filesystem::path& key);

}  // namespace dsf::codec
