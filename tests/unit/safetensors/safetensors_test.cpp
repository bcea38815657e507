#include "dsf/safetensors/safetensors.h"

#include <array>
#include <cstring>
#include <doctest/doctest.h>

#include "dsf/base/numeric.h"
#include "dsf/test/support.h"

using namespace dsf;
using safetensors::TensorData;
using tensor::DType;

namespace {

TensorData f32(const std::string& name, std::vector<float> values) {
  TensorData t{name, DType::kF32, {static_cast<int64_t>(values.size())}, {}};
  t.bytes.resize(values.size() * 4);
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

std::string file_with_header(std::string header, size_t data_bytes) {
  std::string out(8, '\0');
  store_le<uint64_t>(out.data(), header.size());
  return out + header + std::string(data_bytes, 'x');
}

Result<safetensors::Header> parse(const std::string& file) { return safetensors::parse_header(as_bytes(file), file.size(), "m.safetensors"); }

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin, uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

TEST_CASE("what is written is read back") {
  const test::TempDir dir;
  const std::vector<TensorData> tensors{f32("b", {1, 2, 3}), f32("a", {-4})};
  const std::array<std::pair<std::string, std::string>, 1> metadata{{{"format", "pt"}}};
  REQUIRE(safetensors::write_file(dir / "m.safetensors", tensors, metadata));
  const auto file = safetensors::File::open(dir / "m.safetensors");
  REQUIRE_MESSAGE(file, file.error().line());
  CHECK(file->header().data_offset % 8 == 0);
  CHECK(file->header().metadata.at(0).second == "pt");
  CHECK(safetensors::to_f32(file->tensor("b").value()).value() == std::vector<float>{1, 2, 3});
  CHECK(safetensors::to_f32(file->tensor("a").value()).value() == std::vector<float>{-4});
  CHECK(file->tensor("c").error().code == Code::kMissing);
  CHECK(safetensors::to_i64(file->tensor("a").value()).error().cls == "dtype");
}

TEST_CASE("malformed headers are refused, each with its reason") {
  const auto refused = [](const std::string& file, const std::string& reason) {
    const auto h = parse(file);
    INFO(reason);
    REQUIRE_FALSE(h);
    CHECK(h.error().code == Code::kContent);
    CHECK_MESSAGE(h.error().what.find(reason) != std::string::npos, h.error().what);
  };
  refused("", "too short");
  refused("1234567", "too short");
  std::string huge = file_with_header("{}", 0);
  store_le<uint64_t>(huge.data(), UINT64_MAX);
  refused(huge, "beyond the format's limit");
  store_le<uint64_t>(huge.data(), 3);
  refused(huge, "beyond the file");
  refused(file_with_header("[]", 0), "does not begin with '{'");
  refused(file_with_header("{\"a\":1}", 0), "no dtype");
  refused(file_with_header("{" + entry("a", "F7", "[1]", 0, 4) + "}", 4), "unknown dtype");
  refused(file_with_header("{" + entry("a", "F32", "[2]", 0, 4) + "}", 4), "needs 8 bytes");
  refused(file_with_header("{" + entry("a", "F32", "[-1]", 0, 4) + "}", 4), "something other than sizes");
  refused(file_with_header("{" + entry("a", "F32", "[4611686018427387904,4]", 0, 4) + "}", 4), "overflows");
  refused(file_with_header("{" + entry("a", "F32", "[1]", 4, 0) + "}", 4), "ascending pair");
  refused(file_with_header("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 0, 4) + "}", 4), "overlaps");
  refused(file_with_header("{" + entry("a", "F32", "[1]", 4, 8) + "}", 8), "hole");
  refused(file_with_header("{" + entry("a", "F32", "[1]", 0, 4) + "}", 5), "1 bytes after the last tensor");
  refused(file_with_header("{" + entry("a", "F32", "[1]", 0, 4) + "}", 3), "truncated");
  refused(file_with_header("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("a", "F32", "[1]", 4, 8) + "}", 8), "appears twice");
  refused(file_with_header("{\"__metadata__\":{\"a\":1}}", 0), "not a string");
}

TEST_CASE("every prefix of a file is refused without a crash") {
  const test::TempDir dir;
  const std::vector<TensorData> tensors{f32("a", {1, 2}), f32("b", {3})};
  REQUIRE(safetensors::write_file(dir / "m.safetensors", tensors));
  const std::string whole = io::read_text(dir / "m.safetensors").value();
  REQUIRE(parse(whole));
  for (size_t n = 0; n < whole.size(); ++n) CHECK_FALSE(parse(whole.substr(0, n)));
}

TEST_CASE("a sharded checkpoint is one set of tensors, and its index must agree with its shards") {
  const test::TempDir dir;
  const std::vector<TensorData> one{f32("a", {1})}, two{f32("b", {2}), f32("c", {3})};
  REQUIRE(safetensors::write_file(dir / "model-00001-of-00002.safetensors", one));
  REQUIRE(safetensors::write_file(dir / "model-00002-of-00002.safetensors", two));
  const auto index = dir / "model.safetensors.index.json";
  const auto write_index = [&](std::vector<safetensors::IndexEntry> entries) { REQUIRE(safetensors::write_index(index, entries, 12)); };
  const std::string s1 = "model-00001-of-00002.safetensors", s2 = "model-00002-of-00002.safetensors";

  write_index({{"a", s1}, {"b", s2}, {"c", s2}});
  const auto ok = safetensors::Checkpoint::open(dir.path());
  REQUIRE_MESSAGE(ok, ok.error().line());
  CHECK(ok->names() == std::vector<std::string>{"a", "b", "c"});
  CHECK(safetensors::to_f32(ok->tensor("c").value()).value() == std::vector<float>{3});
  CHECK(ok->tensor("d").error().code == Code::kMissing);

  write_index({{"a", s1}, {"b", s2}});
  CHECK(safetensors::Checkpoint::open(dir.path()).error().what.find("does not name tensor c") != std::string::npos);
  write_index({{"a", s2}, {"b", s2}, {"c", s2}});
  CHECK(safetensors::Checkpoint::open(dir.path()).error().cls == "index");
  write_index({{"a", s1}, {"b", s2}, {"c", s2}, {"d", "model-00003-of-00002.safetensors"}});
  CHECK(safetensors::Checkpoint::open(dir.path()).error().cls == "missing_shard");
  write_index({{"a", "../" + s1}});
  CHECK(safetensors::Checkpoint::open(dir.path()).error().what.find("not a plain file name") != std::string::npos);
  std::filesystem::remove(index);
  CHECK(safetensors::Checkpoint::open(dir.path()));
  REQUIRE(safetensors::write_file(dir / "extra.safetensors", one));
  CHECK(safetensors::Checkpoint::open(dir.path()).error().cls == "duplicate_tensor");
}
