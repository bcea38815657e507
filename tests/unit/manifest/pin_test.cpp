#include "dsf/manifest/pin.h"

#include <doctest/doctest.h>

#include <random>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using manifest::Pin;
using manifest::PinFile;

namespace {

std::string digits(std::mt19937_64& rng, size_t n) {
  std::string out;
  while (out.size() < n) out += "0123456789abcdef"[rng() % 16];
  return out;
}

PinFile file(std::string path, std::optional<uint64_t> size, std::string sha) {
  PinFile f;
  f.path = std::move(path);
  f.size = size;
  f.sha256 = std::move(sha);
  f.role = manifest::guess_role(f.path);
  return f;
}

Pin small_pin() {
  std::mt19937_64 rng(1);
  Pin p;
  p.name = "small";
  p.source.repo = "org/repo";
  p.source.revision = digits(rng, 40);
  p.complete = true;
  p.files = {file("config.json", 582, digits(rng, 64)), file("model.safetensors", 1000, digits(rng, 64))};
  p.files[0].git_sha1 = digits(rng, 40);
  p.files[1].lfs = true;
  return p;
}

Pin random_pin(std::mt19937_64& rng) {
  Pin p;
  p.name = "r\xC3\xA9\"\\\n" + digits(rng, 3);
  p.source.repo = "org/" + digits(rng, 5);
  if (rng() % 2 != 0) p.source.revision = digits(rng, 40);
  if (rng() % 2 != 0) p.source.license = "mit";
  p.complete = rng() % 2 != 0;
  if (rng() % 3 == 0) p.select.include = {"*.json", "a[1]/"};
  if (rng() % 3 == 0) p.expect = {{"*.safetensors", rng() % 50}};
  if (rng() % 3 == 0) p.extra = {{"x_note", json::Value("free")}};
  for (size_t n = rng() % 6; n > 0; --n) {
    PinFile f = file(digits(rng, 6) + ".safetensors", rng() >> 16, digits(rng, 64));
    if (rng() % 4 == 0) f.size.reset();
    if (rng() % 4 == 0) f.sha256.clear();
    if (rng() % 2 != 0) f.git_sha1 = digits(rng, 40);
    if (rng() % 2 != 0) f.safetensors = manifest::SafetensorsFacts{rng() % 1000, digits(rng, 64), rng() % 10};
    if (rng() % 2 != 0)
      f.tensors = {{"t", "BF16", {2, 3}, 0, 12, digits(rng, 64)}, {"s", "F32", {}, 12, 16, digits(rng, 64)}};
    if (rng() % 2 != 0) f.pieces = manifest::PieceDigests{1 << 20, digits(rng, 64)};
    f.lfs = rng() % 2 != 0;
    p.files.push_back(std::move(f));
  }
  p.sort();
  return p;
}

void check_refused(std::string text, std::string_view from, std::string_view to, std::string_view words,
                   Code code = Code::kUsage) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  text.replace(at, from.size(), to);
  const auto r = manifest::parse_pin(text, "p.json");
  REQUIRE_MESSAGE(!r, words);
  CHECK(r.error().code == code);
  CHECK_MESSAGE(r.error().line().find(words) != std::string::npos, r.error().line());
}

}  // namespace

TEST_CASE("a pin has exactly the byte form of the specification") {
  Pin p;
  p.name = "engram";
  p.source.repo = "org/repo";
  p.source.license = "mit";
  p.source.revision = "0123456789abcdef0123456789abcdef01234567";
  p.files = {file("config.json", 582, "bdc265c2e79f1c6b6c0f4f25313e0d1cc936e0fd4e1e082bb26f65a4bd0fa557")};
  p.files[0].git_sha1 = "d3d7c1e8c3e78eeb1640b8e2041ee256e24c9ee1";
  const std::string want = R"({
  "complete": false,
  "files": [
    {
      "git_sha1": "d3d7c1e8c3e78eeb1640b8e2041ee256e24c9ee1",
      "path": "config.json",
      "role": "config",
      "sha256": "bdc265c2e79f1c6b6c0f4f25313e0d1cc936e0fd4e1e082bb26f65a4bd0fa557",
      "size": 582
    }
  ],
  "name": "engram",
  "schema": "hub-pin",
  "source": {
    "endpoint": "https://huggingface.co",
    "license": "mit",
    "repo": "org/repo",
    "repo_type": "model",
    "requested_revision": "main",
    "revision": "0123456789abcdef0123456789abcdef01234567"
  },
  "totals": {
    "bytes": 582,
    "files": 1
  },
  "version": 1
}
)";
  CHECK(manifest::write(p) == want);
  CHECK(manifest::check_canonical(want, "p.json"));
}

TEST_CASE("parse then write is the identity for a thousand random pins") {
  std::mt19937_64 rng(20261130);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = manifest::write(random_pin(rng));
    const auto again = manifest::parse_pin(text, "random");
    REQUIRE_MESSAGE(again, i << ": " << again.error().line());
    REQUIRE(manifest::write(*again) == text);
  }
}

TEST_CASE("another byte form of the same pin is not canonical") {
  const std::string text = manifest::write(small_pin());
  std::string crlf;
  for (const char c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  for (const std::string& other : {crlf, text + "\n", " " + text}) {
    CHECK(manifest::parse_pin(other, "p.json"));
    const auto r = manifest::check_canonical(other, "p.json");
    REQUIRE(!r);
    CHECK(r.error().code == Code::kContent);
  }
}

TEST_CASE("typos, floats, duplicates, unsorted files and wrong sums are refused with their place") {
  const std::string text = manifest::write(small_pin());
  check_refused(text, "\"complete\"", "\"completed\"", "unknown member \"completed\"");
  check_refused(text, "582", "582.0", "files[0].size: integer expected");
  check_refused(text, "\"size\": 582", "\"size\": -1", "out of range");
  check_refused(text, "\"size\": 582", "\"size\": 9007199254740992", "out of range");
  check_refused(text, "\"name\"", "\"version\"", "appears twice");
  check_refused(text, "\"files\": 2", "\"files\": 3", "does not add up");
  check_refused(text, "\"config.json\"", "\"z.json\"", "not sorted");
  check_refused(text, "\"config.json\"", "\"../x.json\"", "files[0].path: component '..'");
  check_refused(text, "\"weights\"", "\"wights\"", "unknown role");
  check_refused(text, "\"hub-pin\"", "\"hub-pim\"", "unknown schema", Code::kContent);
  check_refused(text, "\"version\": 1", "\"version\": 2", "newer", Code::kContent);
  check_refused(text, "\"org/repo\"", "\"org/../repo\"", "not namespace/name");
  std::string upper = small_pin().files[0].sha256;
  check_refused(text, upper, "X" + upper.substr(1), "64 lower-case hex digits");
  CHECK_FALSE(manifest::parse_pin("", "p.json"));
  CHECK_FALSE(manifest::parse_pin("[]", "p.json"));
  CHECK_FALSE(manifest::parse_pin(std::string(1000, '['), "p.json"));
}

TEST_CASE("any prefix of a pin is refused without a crash") {
  const std::string text = manifest::write(small_pin());
  for (size_t n = 0; n + 2 < text.size(); ++n)
    CHECK_FALSE(manifest::parse_pin(std::string_view(text).substr(0, n), "p.json"));
}

TEST_CASE("an open pin says what is open") {
  Pin p = small_pin();
  CHECK_FALSE(p.open());
  p.expect = {{"*.safetensors", 43}};
  p.source.revision.clear();
  p.files[1].sha256.clear();
  CHECK(p.open());
  const auto items = p.open_items();
  REQUIRE(items.size() == 3);
  CHECK(items[0] == "revision");
  CHECK(items[1] == "1 of 43 files *.safetensors");
  CHECK(items[2] == "model.safetensors: sha256");
  CHECK(p.open_items(1).size() == 1);
  const auto again = manifest::parse_pin(manifest::write(p), "p.json");
  REQUIRE(again);
  CHECK(again->open());
  CHECK(again->total_bytes() == 1582);
}

TEST_CASE("a diff names what changed, and filling in an open field is not a change of content") {
  Pin a = small_pin();
  Pin b = a;
  CHECK(manifest::diff(a, b).empty());
  a.files[1].sha256.clear();
  auto d = manifest::diff(a, b);
  CHECK_FALSE(d.content_changed);
  CHECK(d.lines.size() == 1);
  a = b;
  b.files[0].sha256[0] = b.files[0].sha256[0] == 'a' ? 'b' : 'a';
  b.files.push_back(file("z", 1, b.files[0].sha256));
  d = manifest::diff(a, b);
  CHECK(d.content_changed);
  CHECK(d.lines.size() == 3);
}

TEST_CASE("roles are guessed from the name") {
  using manifest::Role;
  CHECK(manifest::guess_role("model-00001-of-00043.safetensors") == Role::kWeights);
  CHECK(manifest::guess_role("model.safetensors.index.json") == Role::kIndex);
  CHECK(manifest::guess_role("sub/tokenizer.json") == Role::kTokenizer);
  CHECK(manifest::guess_role("chat_template.jinja") == Role::kTemplate);
  CHECK(manifest::guess_role("config.json") == Role::kConfig);
  CHECK(manifest::guess_role("README.md") == Role::kDoc);
  CHECK(manifest::guess_role("x") == Role::kOther);
}

TEST_CASE("a deployment places its pins side by side") {
  test::TempDir dir;
  const std::string pin = manifest::write(small_pin());
  REQUIRE(io::write_file_atomic(dir / "a.json", pin));
  REQUIRE(io::write_file_atomic(dir / "b.json", pin));
  const auto deployment = [&](std::string_view first, std::string_view second) {
    const std::string text =
        std::string(R"({"schema":"hub-deployment","version":1,"name":"both","pins":[{"pin":"a.json","subfolder":")") +
        std::string(first) + R"("},{"pin":"b.json","subfolder":")" + std::string(second) + R"("}]})";
    REQUIRE(io::write_file_atomic(dir / "d.json", text));
    return manifest::load_deployment(dir / "d.json");
  };
  const auto good = deployment("exl3", "engram");
  REQUIRE(good);
  CHECK(good->name == "both");
  REQUIRE(good->pins.size() == 2);
  CHECK(good->pins[1].subfolder == "engram");
  CHECK(good->pins[1].bytes == pin);
  CHECK_FALSE(deployment("x", "x"));
  CHECK_FALSE(deployment("x", "x/y"));
  CHECK_FALSE(deployment("", "y"));
  CHECK_FALSE(deployment("../x", "y"));
  const auto single = manifest::load_deployment(dir / "a.json");
  REQUIRE(single);
  CHECK(single->name == "small");
  CHECK(single->pins.at(0).subfolder.empty());
  const auto absent = manifest::load_deployment(dir / "none.json");
  REQUIRE(!absent);
  CHECK(absent.error().code == Code::kMissing);
}

TEST_CASE("the committed manifests are in canonical form, and open where nothing is published") {
  const auto dir = test::golden().parent_path().parent_path() / "manifests";
  for (const char* name : {"deepseek-v4.1-flash", "deepseek-v4.1-flash-1017-exl3", "deepseek-v4.1-flash-1017-engram"}) {
    const auto text = io::read_text(dir / (std::string(name) + ".json"));
    REQUIRE_MESSAGE(text, name);
    const auto canonical = manifest::check_canonical(*text, name);
    CHECK_MESSAGE(canonical, (canonical ? "" : canonical.error().line()));
    CHECK(manifest::parse_pin(*text, name)->name == name);
  }
  const auto deployment = manifest::load_deployment(dir / "deepseek-v4.1-flash-1017.json");
  REQUIRE_MESSAGE(deployment, deployment.error().line());
  REQUIRE(deployment->pins.size() == 2);
  CHECK(deployment->pins[0].subfolder == "exl3");
  CHECK(deployment->pins[0].pin.expect.at(0).count == 43);
  CHECK(deployment->pins[1].pin.find("model-00047-of-00048.safetensors") != nullptr);
}
