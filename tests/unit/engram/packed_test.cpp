#include "dsf/engram/packed.h"
#include "dsf/engram/packed_writer.h"

#include <filesystem>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/test/support.h"
#include "release.h"

using namespace dsf;
using namespace dsf::test;
using engram::PackedHeader;

TEST_CASE("the four published headers of the release, byte for byte") {
  struct Row {
    size_t layer;
    int rank;
    const char* first48;
    const char* sha;
    uint64_t bytes;
  };
  const engram::Layout l = release_layout();
  for (const Row& r : {Row{0, 0, "44535631454e343101000000000000000000000000000000ccb6710b000000001878e316000000000801000000000000",
                           "a671c481201e9f72b46c925c8986356d5d1c499f4fac93b0ba90092b78b150cb", 50688463456},
                       Row{0, 1, "44535631454e34310100000000000000ccb6710b000000001878e316000000001878e316000000000801000000000000",
                           "538b3a0418d2c7bbfb9b81254096fc1bf1cb2746c9ac1e6db92463ffb1f4b177", 50689173088},
                       Row{1, 0, "44535631454e34310e00000000000000000000000000000068cb710b000000002aa1e316000000000801000000000000",
                           "d1b8773454ee01874f8b46ed392c5b669fa9c41e5f535514a19f741210f8095a", 50689856320},
                       Row{1, 1, "44535631454e34310e0000000000000068cb710b000000002aa1e316000000002aa1e316000000000801000000000000",
                           "d3c55fb4993ed17e43fd8d67fcb9923e0221fb3381e9036c1ed261a7d8781344", 50690555920}}) {
    const auto header = engram::expected_header(l, r.layer, r.rank, 2);
    REQUIRE(header);
    const auto bytes = engram::encode_header(*header);
    CHECK(to_hex(std::span(bytes).first(48)) == r.first48);
    CHECK(codec::sha256(bytes).hex() == r.sha);
    CHECK(header->file_bytes() == r.bytes);
    const auto back = engram::parse_packed_header(bytes, r.bytes, "x");
    REQUIRE(back);
    CHECK(*back == *header);
  }
  CHECK(engram::packed_file_name(14, 1, 2) == "engram-l14-r1of2.bin");
}

TEST_CASE("the published pack fixture, byte for byte, whatever the chunk size") {
  const PackedHeader header{1, 1000, 4000, 9000, 264};
  for (const uint64_t chunk : {uint64_t{1}, uint64_t{999}, uint64_t{3000}}) {
    TempDir dir;
    auto writer = engram::PackedWriter::create(dir / "p.bin", header);
    REQUIRE(writer);
    for (uint64_t row = 1000; row < 4000;) {
      std::vector<std::byte> weights, scales;
      for (uint64_t end = std::min<uint64_t>(row + chunk, 4000); row < end; ++row) {
        for (uint64_t j = 0; j < 256; ++j) weights.push_back(fixture_byte(row, j));
        for (uint64_t j = 256; j < 264; ++j) scales.push_back(fixture_byte(row, j));
      }
      REQUIRE(writer->append(weights, scales));
    }
    CHECK(!std::filesystem::exists(dir / "p.bin"));
    REQUIRE(writer->finish());
    CHECK(*io::file_size(dir / "p.bin") == 796096);
    CHECK(codec::sha256_file(dir / "p.bin")->hex() == "0a9d7ecf26bb40875b6087c62211df6d69aa080730c3912679a6b9949a254b9c");
  }
}

TEST_CASE("an unfinished file leaves nothing behind") {
  TempDir dir;
  {
    auto writer = engram::PackedWriter::create(dir / "p.bin", PackedHeader{1, 0, 10, 10, 264});
    REQUIRE(writer);
    REQUIRE(writer->append(std::vector<std::byte>(256), std::vector<std::byte>(8)));
    const auto early = writer->finish();
    REQUIRE(!early);
    CHECK(early.error().code == Code::kBug);
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("a header is refused for magic, sense, reserved bytes and size, each with its class") {
  const PackedHeader good{1, 1000, 4000, 9000, 264};
  const auto refused = [&](size_t at, uint64_t word, uint64_t size) {
    auto bytes = engram::encode_header(good);
    store_le(bytes.data() + at, word);
    const auto r = engram::parse_packed_header(bytes, size, "f.bin");
    REQUIRE(!r);
    CHECK(r.error().code == Code::kContent);
    return r.error().cls;
  };
  CHECK(refused(0, 0, good.file_bytes()) == "magic");
  CHECK(refused(0, __builtin_bswap64(engram::kPackedMagic), good.file_bytes()) == "magic");
  CHECK(refused(16, 4001, good.file_bytes()) == "header");
  CHECK(refused(32, 3999, good.file_bytes()) == "header");
  CHECK(refused(40, 0, good.file_bytes()) == "header");
  CHECK(refused(40, UINT64_MAX, good.file_bytes()) == "header");
  CHECK(refused(4088, 1, good.file_bytes()) == "reserved");
  CHECK(refused(8, 1, good.file_bytes() - 1) == "size");
  CHECK(refused(8, 1, good.file_bytes() + 1) == "size");
  CHECK(engram::parse_packed_header({}, 0, "f").error().cls == "size");
  auto huge = engram::encode_header({1, 0, UINT64_MAX / 2, UINT64_MAX, 264});
  CHECK(engram::parse_packed_header(huge, 4096, "f").error().cls == "size");  // rows * row bytes overflows
}
