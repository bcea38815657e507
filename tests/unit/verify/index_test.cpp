#include <functional>

#include "folder.h"

using namespace dsf;
using namespace dsf::test;

namespace {
void replace(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  std::string text = *io::read_text(file);
  REQUIRE(text.find(from) != std::string::npos);
  REQUIRE(io::write_file_atomic(file, text.replace(text.find(from), from.size(), to)));
}
Ran after(
    const std::function<void(const Folder&)>& damage,
    const std::function<void(verify::RawOptions&)>& options = [](verify::RawOptions&) {}) {
  const Folder f;
  damage(f);
  verify::RawOptions raw = verifying(f);
  options(raw);
  return run_verify(raw);
}
void expect(const Ran& ran, int code, const std::string& words) {
  INFO(ran.err);
  CHECK(ran.code == code);
  CHECK(ran.says(words));
}
}  // namespace

TEST_CASE("an index that agrees with its shards passes without a word") {
  const Ran ran = after([](const Folder&) {});
  CHECK(ran.code == 0);
  CHECK(ran.err == "");
}

TEST_CASE("IX01, IX02: an index that is malformed or leaves its folder") {
  expect(after([](const Folder& f) { REQUIRE(io::write_file_atomic(f.dir / kIndex, "{")); }), 1, "IX01");
  expect(after([](const Folder& f) { REQUIRE(io::write_file_atomic(f.dir / kIndex, "{}")); }), 1, "IX01");
  expect(after([](const Folder& f) { REQUIRE(io::write_file_atomic(f.dir / kIndex, R"({"weight_map": {"a": 1}})")); }),
         1, "IX01");
  expect(after([](const Folder& f) {
           REQUIRE(io::write_file_atomic(f.dir / kIndex, R"({"weight_map": {"a": "x", "a": "y"}})"));
         }),
         1, "IX01");
  expect(after([](const Folder& f) { replace(f.dir / kIndex, kShard2, "../secret.safetensors"); }), 1, "IX02");
}

TEST_CASE("IX03: a shard that the index names is missing, unless a part was wanted") {
  const auto remove = [](const Folder& f) { std::filesystem::remove(f.dir / kShard2); };
  expect(after(remove), 1, "IX03 names model-00002-of-00002.safetensors, which is missing");
  expect(after(remove, [](verify::RawOptions& r) { r.partial = true; }), 0, "note: IX03");
}

TEST_CASE("IX04, IX05: tensors and index disagree") {
  expect(after([](const Folder& f) { replace(f.dir / kIndex, "\"c\": \"model-00002", "\"d\": \"model-00002"); }), 1,
         "IX04 places d in");
  const auto unlisted = [](const Folder& f) {
    REQUIRE(safetensors::write_index(f.dir / kIndex,
                                     std::vector<safetensors::IndexEntry>{{"a", kShard1}, {"c", kShard2}}, 29));
  };
  expect(after(unlisted), 0, "warning: IX05 does not list b");
  expect(after(unlisted, [](verify::RawOptions& r) { r.strict = true; }), 1, "IX05");
  expect(after(unlisted, [](verify::RawOptions& r) { r.warnings_as_errors = true; }), 10, "IX05");
}

TEST_CASE("IX06: one tensor in two shards") {
  expect(after([](const Folder& f) {
           REQUIRE(safetensors::write_file(
               f.dir / kShard2,
               std::vector<safetensors::TensorData>{{"c", tensor::DType::kI8, {5}, std::vector<std::byte>(5)},
                                                    {"a", tensor::DType::kI8, {1}, std::vector<std::byte>(1)}}));
         }),
         1, "IX06 tensor a stands in");
}

TEST_CASE("IX07, IX08, IX09: totals, numbering, strays") {
  expect(after([](const Folder& f) { replace(f.dir / kIndex, "37", "38"); }), 0, "warning: IX07");
  expect(after([](const Folder& f) {
           REQUIRE(safetensors::write_index(f.dir / kIndex,
                                            std::vector<safetensors::IndexEntry>{{"a", kShard1}, {"b", kShard1}}, 32));
         }),
         0, "IX08 names 1 of 2");
  expect(after([](const Folder& f) { std::filesystem::copy_file(f.dir / kShard2, f.dir / "stray.safetensors"); }), 0,
         "warning: IX09 does not name stray.safetensors");
}

TEST_CASE("a flood of equal findings is counted, not printed") {
  const Ran ran = after([](const Folder& f) {
    std::vector<safetensors::IndexEntry> entries{{"a", kShard1}, {"b", kShard1}, {"c", kShard2}};
    for (int i = 0; i < 1000; ++i) entries.push_back({"x" + std::to_string(i), kShard1});
    REQUIRE(safetensors::write_index(f.dir / kIndex, entries, 37));
  });
  CHECK(ran.code == 1);
  CHECK(ran.lines() < 10);
  CHECK(ran.says("and 995 more"));
}
