#include "tools/verify/structure.h"

#include "folder.h"

using namespace dsf;
using namespace dsf::test;
using verify::Severity;

namespace {
// "ST08" or "ST08 ST09" of the errors, "st11" for warnings, in order.
std::string codes(const std::string& bytes, const verify::Expected* expected = nullptr) {
  TempDir dir;
  REQUIRE(io::write_file_atomic(dir / "x.safetensors", bytes));
  const auto s = verify::check_structure(dir / "x.safetensors", expected);
  REQUIRE(s);
  std::string out;
  for (const auto& f : s->findings)
    out += (out.empty() ? "" : " ") + (f.severity == Severity::kError ? f.code : "st" + f.code.substr(2));
  return out;
}
std::string one(const std::string& entry, size_t data_bytes) {
  std::string header = "{\"t\":" + entry + "}";
  header.append(7 - (header.size() + 7) % 8, ' ');
  return raw_file(header, data_bytes);
}
}  // namespace

TEST_CASE("a sound file has no findings, empty and scalar tensors included") {
  CHECK(codes(one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})", 24)) == "");
  CHECK(codes(one(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})", 4)) == "");
  CHECK(codes(one(R"({"dtype":"F32","shape":[0,3],"data_offsets":[0,0]})", 0)) == "");
}

TEST_CASE("ST01 to ST03: lengths that cannot be") {
  CHECK(codes("abc") == "ST01");
  CHECK(codes("") == "ST01");
  std::string huge = raw_file("{}", 0);
  store_le<uint64_t>(huge.data(), 100'000'001);
  CHECK(codes(huge) == "ST02");
  store_le<uint64_t>(huge.data(), UINT64_MAX - 3);
  CHECK(codes(huge) == "ST02");
  store_le<uint64_t>(huge.data(), 3);
  CHECK(codes(huge) == "ST03");
}

TEST_CASE("ST04 to ST06: a header that is not what it should be") {
  CHECK(codes(raw_file(" {}     ", 0)) == "ST04");
  CHECK(codes(raw_file("{]      ", 0)) == "ST05");
  CHECK(codes(raw_file("{\"\xff\":1} ", 0)) == "ST05");
  CHECK(
      codes(
          raw_file(
              R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
              1))
          .starts_with("st11 ST05"));
  CHECK(codes(raw_file("{\"a\":" + std::string(20, '[') + std::string(20, ']') + "}  ", 0)).find("ST05") !=
        std::string::npos);
  CHECK(codes(raw_file(R"({"__metadata__":[ ]}    )", 0)) == "ST06");
  CHECK(codes(raw_file(R"({"__metadata__":{"k":1}})", 0)) == "ST06");
}

TEST_CASE("ST07 and ST08: entries that are malformed or do not add up") {
  CHECK(codes(one(R"({"dtype":"F32","shape":[2]})", 8)).starts_with("ST07"));
  CHECK(codes(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8)).starts_with("ST07"));
  CHECK(codes(one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", 8)).starts_with("ST07"));
  CHECK(codes(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8)).starts_with("ST07"));
  CHECK(codes(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775808]})", 8)).starts_with("ST07"));
  CHECK(codes(one(R"({"dtype":"I8","shape":[1],"data_offsets":[0,1],"extra":1})", 1)) == "st07");
  CHECK(codes(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8)) == "ST08");
  CHECK(codes(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})", 8)) == "ST08");
  CHECK(codes(one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", 1)) == "ST08");
  CHECK(codes(one(R"({"dtype":"F99","shape":[3],"data_offsets":[0,1]})", 1)) == "st08");
}

TEST_CASE("ST09 and ST10: holes, overlaps, truncation, trailing bytes") {
  const auto two = [](const char* a, const char* b, size_t data) {
    return codes(one(std::string(R"({"dtype":"I8","shape":[4],"data_offsets":)") + a +
                         R"(},"u":{"dtype":"I8","shape":[4],"data_offsets":)" + b + "}",
                     data));
  };
  CHECK(two("[0,4]", "[4,8]", 8) == "");
  CHECK(two("[4,8]", "[0,4]", 8) == "");
  CHECK(two("[0,4]", "[2,6]", 6) == "ST09");
  CHECK(two("[0,4]", "[6,10]", 10) == "ST09");
  CHECK(two("[1,5]", "[5,9]", 9) == "ST09");
  CHECK(two("[0,4]", "[4,8]", 7) == "ST10");
  CHECK(two("[0,4]", "[4,8]", 9) == "ST10");
}

TEST_CASE("ST11, ST12, ST13, ST14") {
  CHECK(codes(raw_file(R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1)) == "st11");
  const std::string good = one(R"({"dtype":"I8","shape":[1],"data_offsets":[0,1]})", 1);
  verify::Expected pinned{.size = good.size(),
                          .header_sha256 = codec::sha256(std::string_view(good).substr(0, good.size() - 1)).hex(),
                          .header_bytes = good.size() - 1};
  CHECK(codes(good, &pinned) == "");
  pinned.header_sha256 = std::string(64, '0');
  CHECK(codes(good, &pinned) == "ST12");
  CHECK(codes("<!DOCTYPE html><html>") == "ST13");
  CHECK(codes("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n") == "ST13");
  CHECK(codes("{\"error\":\"Repository not found\"}") == "ST13");

  TempDir dir;
  REQUIRE(io::write_file_atomic(dir / "x.safetensors",
                                one(R"({"dtype":"I8","shape":[4194304],"data_offsets":[0,4194304]})", 0)));
  std::filesystem::resize_file(dir / "x.safetensors", std::filesystem::file_size(dir / "x.safetensors") + 4194304);
  const auto s = verify::check_structure(dir / "x.safetensors", nullptr);
  REQUIRE(s);
  // File systems without holes show none; those that have them must show this one.
  for (const auto& f : s->findings) CHECK(f.code == "ST14");
}

TEST_CASE("any prefix of a sound file is refused, never accepted and never a crash") {
  const std::string good = one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})", 24);
  for (size_t n = 0; n < good.size(); ++n) {
    INFO(n);
    CHECK(codes(good.substr(0, n)).find("ST") != std::string::npos);
  }
}

TEST_CASE("every single flipped header bit either is found or leaves a file that the loader takes") {
  const std::string good = one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})", 24);
  TempDir dir;
  for (size_t bit = 0; bit < (good.size() - 24) * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    if (codes(bad).find("ST") == std::string::npos && codes(bad).find("st08") == std::string::npos) {
      REQUIRE(io::write_file_atomic(dir / "y", bad));
      CHECK(safetensors::read_header(dir / "y"));
    }
  }
}
