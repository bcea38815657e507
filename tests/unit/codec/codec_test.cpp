#include <doctest/doctest.h>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/codec/zstd.h"
#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;

TEST_CASE("SHA-256, git blob ids and CRC32C match their published vectors") {
  // FIPS 180-4 examples; `git hash-object` of "hello\n" and of an empty file; RFC 3720 B.4.
  CHECK(codec::sha256("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(codec::sha256("").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(codec::git_blob_sha1(as_bytes("hello\n")) == "ce013625030ba8dba906f756967f9e9ca394464a");
  CHECK(codec::git_blob_sha1({}) == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  CHECK(codec::crc32c(as_bytes(std::string(32, '\0'))) == 0x8a9136aau);
  CHECK(codec::crc32c(as_bytes("123456789")) == 0xe3069283u);
}

TEST_CASE("a hasher can be cloned and used again") {
  codec::Sha256 h;
  h.update(as_bytes("a"));
  codec::Sha256 copy = h.clone();
  h.update(as_bytes("bc"));
  CHECK(h.finish() == codec::sha256("abc"));
  CHECK(copy.finish() == codec::sha256("a"));
  h.update(as_bytes("x"));
  CHECK(h.finish() == codec::sha256("x"));
}

TEST_CASE("files hash in blocks") {
  const test::TempDir dir;
  const std::string big(3'000'001, 'x');
  REQUIRE(io::write_file_atomic(dir / "f", big));
  uint64_t seen = 0;
  CHECK(codec::sha256_file(dir / "f", [&](uint64_t n) { seen += n; return true; }).value() == codec::sha256(big));
  CHECK(seen == big.size());
  CHECK(codec::git_blob_sha1_file(dir / "f").value() == codec::git_blob_sha1(as_bytes(big)));
  CHECK_FALSE(codec::sha256_file(dir / "f", [](uint64_t) { return false; }));
}

TEST_CASE("digests parse from 64 hex digits only") {
  const auto d = codec::sha256("abc");
  CHECK(codec::Digest::from_hex(d.hex()) == d);
  CHECK_FALSE(codec::Digest::from_hex("ab"));
  CHECK_FALSE(codec::Digest::from_hex(d.hex().substr(1) + "g"));
}

TEST_CASE("zstd streams survive the round trip; damaged, cut and oversized ones are refused") {
  std::string packed;
  codec::ZstdWriter w([&](std::span<const std::byte> b) -> Result<void> {
    packed += as_text(b);
    return {};
  });
  std::string plain;
  for (int i = 0; i < 20000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    plain += line;
    REQUIRE(w.write(as_bytes(line)));
    if (i == 100) {
      REQUIRE(w.flush());
      CHECK_FALSE(packed.empty());
    }
  }
  REQUIRE(w.finish());
  CHECK(codec::zstd_decompress(as_bytes(packed), "t").value() == plain);
  CHECK(codec::zstd_decompress(as_bytes(codec::zstd_compress(as_bytes(plain))), "t").value() == plain);
  CHECK(codec::zstd_decompress(as_bytes(packed), "t", 1000).error().cls == "too_large");
  CHECK(codec::zstd_decompress(as_bytes(packed).first(packed.size() / 2), "t").error().cls == "truncated");
  CHECK_FALSE(codec::zstd_decompress(as_bytes("not zstd at all"), "t"));
  CHECK_FALSE(codec::zstd_decompress({}, "t"));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x10);
  CHECK_FALSE(codec::zstd_decompress(as_bytes(packed), "t"));
}
