#include "dsf/codec/signature.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;

namespace {

// The first key pair of RFC 8032 7.1 in the PEM forms of OpenSSL.
constexpr const char* kPrivate =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE "
    "KEY-----\n";
constexpr const char* kPublic =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC "
    "KEY-----\n";
// Another public key.
constexpr const char* kOther =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n-----END PUBLIC "
    "KEY-----\n";
// Of sha256("abc"), made with openssl pkeyutl -sign -rawin (OpenSSL 3.0.19) over the message of hub.md 4.6.
constexpr const char* kGolden =
    "2S+KzfcOhYuS4G7+n9BxdbS8HKvto1CekYv5FdzMUJ+AHWHWIEfXX9u7bmC8KpPUhqEq6oo9bEA9tHtIdAE+CA==";

struct Keys {
  Keys() {
    REQUIRE(io::write_file_atomic(dir / "private.pem", kPrivate));
    REQUIRE(io::write_file_atomic(dir / "public.pem", kPublic));
    REQUIRE(io::write_file_atomic(dir / "other.pem", kOther));
  }
  test::TempDir dir;
};

const codec::Digest kAbc = codec::sha256("abc");

}  // namespace

TEST_CASE("a signature is what OpenSSL's own tool makes, and checks") {
  const Keys k;
  const auto line = codec::sign_digest(codec::kPinDomain, kAbc, k.dir / "private.pem");
  REQUIRE_MESSAGE(line, line.error().line());
  CHECK(*line == std::string("{\"alg\":\"ed25519\",\"keyid\":\"21fe31dfa154a261\",\"sig\":\"") + kGolden + "\"}\n");
  CHECK(codec::check_signature(codec::kPinDomain, kAbc, *line, "s", k.dir / "public.pem"));
  CHECK(codec::check_signature(codec::kPinDomain, kAbc, *line, "s", k.dir / "private.pem"));
  CHECK(*codec::key_id(k.dir / "public.pem") == "21fe31dfa154a261");
}

TEST_CASE("another content, domain, key or spelling is refused") {
  const Keys k;
  const std::string line = *codec::sign_digest(codec::kPinDomain, kAbc, k.dir / "private.pem");
  const auto refused = [&](std::string_view domain, const codec::Digest& d, const std::string& text, const char* key) {
    const auto r = codec::check_signature(domain, d, text, "s", k.dir / key);
    return !r && r.error().code == Code::kContent && r.error().cls == "signature";
  };
  CHECK(refused(codec::kPinDomain, codec::sha256("abd"), line, "public.pem"));
  CHECK(refused("hub-record-v1", kAbc, line, "public.pem"));
  CHECK(refused(codec::kPinDomain, kAbc, line, "other.pem"));
  for (const size_t at : {line.find(kGolden), line.find(kGolden) + 40}) {
    std::string flipped = line;
    flipped[at] = flipped[at] == 'A' ? 'B' : 'A';
    CHECK(refused(codec::kPinDomain, kAbc, flipped, "public.pem"));
  }
  for (const char* text :
       {"", "{}", "[1]", R"({"alg":"ed25519","keyid":"21fe31dfa154a261","sig":"AAAA"})", R"({"alg":"none","sig":5})"})
    CHECK(refused(codec::kPinDomain, kAbc, text, "public.pem"));
}

TEST_CASE("a file that is no key of the right kind is a usage error, an absent one is missing") {
  const Keys k;
  CHECK(codec::sign_digest(codec::kPinDomain, kAbc, k.dir / "public.pem").error().code == Code::kUsage);
  CHECK(codec::sign_digest(codec::kPinDomain, kAbc, k.dir / "none.pem").error().code == Code::kMissing);
  REQUIRE(io::write_file_atomic(k.dir / "bad.pem", "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n"));
  CHECK(codec::check_signature(codec::kPinDomain, kAbc, "{}", "s", k.dir / "bad.pem").error().code == Code::kUsage);
}
