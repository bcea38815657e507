#include "tools/fetch/bundle.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/codec/signature.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "fixture.h"
#include "tools/fetch/bundle_layout.h"
#include "tools/fetch/bundle_volume.h"

using namespace dsf;
using test::FetchFixture;

namespace {

const std::function<bool()> kNever = [] { return false; };

// A fetched folder, and room for a bundle of it in volumes of 256 KiB.
struct Bundled : FetchFixture {
  Bundled() { REQUIRE(get()); }
  fetch::BundleCreateOptions create_options() const {
    fetch::BundleCreateOptions o;
    o.dir = dir / "out";
    o.bundle = dir / "disk/x.bundle";
    o.volume_bytes = 256 * kKiB;
    o.quiet = true;
    return o;
  }
  Result<int> create(const fetch::BundleCreateOptions& o, const std::function<bool()>& stop = kNever) const {
    fetch::Events events(false);
    return fetch::run_bundle_create(o, stop, events);
  }
  Result<int> create() const { return create(create_options()); }
  Result<int> verify(const std::string& key = "") const {
    fetch::Events events(false);
    return fetch::run_bundle_verify({dir / "disk/x.bundle", key, true}, kNever, events);
  }
  fetch::BundleExtractOptions extract_options() const {
    fetch::BundleExtractOptions o;
    o.bundle = dir / "disk/x.bundle";
    o.local_dir = dir / "copy";
    o.reserve_bytes = 0;
    o.quiet = true;
    return o;
  }
  Result<int> extract(const fetch::BundleExtractOptions& o) const {
    fetch::Events events(false);
    return fetch::run_bundle_extract(o, kNever, events);
  }
  std::filesystem::path volume(uint64_t i) const { return fetch::volume_path(dir / "disk/x.bundle", i); }
  void damage(uint64_t i, uint64_t at) const {
    std::string bytes = *io::read_text(volume(i));
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
    REQUIRE(io::write_file_atomic(volume(i), bytes));
  }
  size_t volumes() const {
    size_t n = 0;
    while (std::filesystem::exists(volume(n))) ++n;
    return n;
  }
};

void check_copy(const Bundled& f) {
  for (const auto& [path, content] : f.files) CHECK_MESSAGE((*io::read_text(f.dir / "copy" / path) == content), path);
}

}  // namespace

TEST_CASE("a folder goes into a bundle and comes out of it, verified on both sides") {
  const Bundled f;
  const auto made = f.create();
  REQUIRE_MESSAGE(made, made.error().line());
  CHECK(f.volumes() > 3);
  for (uint64_t i = 0; i < f.volumes(); ++i) CHECK(*io::file_size(f.volume(i)) <= 1 << 20);
  const auto good = f.verify();
  REQUIRE_MESSAGE(good, good.error().line());
  CHECK(*good == 0);
  const auto out = f.extract(f.extract_options());
  REQUIRE_MESSAGE(out, out.error().line());
  check_copy(f);
  const auto record = manifest::load_fetch_record(f.dir / "copy");
  REQUIRE(record);
  CHECK(record->files.size() == f.files.size());
  CHECK(record->files[0].origin == "bundle");
  CHECK(record->revision == *f.hub->commit_of("org/repo"));
  // The public client's bookkeeping too, and a second run that finds nothing to do.
  CHECK(std::filesystem::exists(f.dir / "copy/.cache/huggingface/download/config.json.metadata"));
  const std::string before = *io::read_text(f.dir / "copy/.cache/fetch/record.json");
  REQUIRE(f.extract(f.extract_options()));
  CHECK(*io::read_text(f.dir / "copy/.cache/fetch/record.json") == before);
}

TEST_CASE("equal input gives equal bytes, and a finished bundle is left alone") {
  const Bundled f;
  REQUIRE(f.create());
  std::vector<std::string> first;
  for (uint64_t i = 0; i < f.volumes(); ++i) first.push_back(codec::sha256_file(f.volume(i))->hex());
  const auto time = std::filesystem::last_write_time(f.volume(0));
  REQUIRE(f.create());
  CHECK(std::filesystem::last_write_time(f.volume(0)) == time);
  std::filesystem::remove_all(f.dir / "disk");
  std::filesystem::remove_all(f.dir / "out");
  REQUIRE(f.get());
  REQUIRE(f.create());
  REQUIRE(f.volumes() == first.size());
  for (uint64_t i = 0; i < f.volumes(); ++i) CHECK(codec::sha256_file(f.volume(i))->hex() == first[i]);
}

TEST_CASE("standard tools read a bundle") {
  if (std::system("command -v zstd >/dev/null && command -v tar >/dev/null") != 0)  // NOLINT
    return test::skip("bundle with zstd and tar", "the zstd program is not installed");
  const Bundled f;
  REQUIRE(f.create());
  const std::string script = "cd '" + (f.dir / "disk").string() +
                             "' && mkdir t && cat x.bundle.[0-9]* | zstd -dc 2>/dev/null | tar -x -C t && cd t && "
                             "sha256sum --quiet -c --strict SHA256SUMS";
  CHECK(std::system(script.c_str()) == 0);  // NOLINT(concurrency-mt-unsafe,cert-env33-c): a test's own script
  CHECK(*io::read_text(f.dir / "disk/t/config.json") == f.files.at("config.json"));
}

TEST_CASE("creating goes on after an interruption, volume by volume") {
  const Bundled f;
  int calls = 0;
  const auto cut = f.create(f.create_options(), [&] { return ++calls > 12; });
  REQUIRE(!cut);
  CHECK(cut.error().cls == "stopped");
  const size_t kept = f.volumes();
  CHECK(kept > 0);
  const auto time = std::filesystem::last_write_time(f.volume(0));
  REQUIRE(f.create());
  CHECK(f.volumes() > kept);
  CHECK(std::filesystem::last_write_time(f.volume(0)) == time);
  CHECK(*f.verify() == 0);
  CHECK_FALSE(std::filesystem::exists(f.dir / "disk/x.bundle.journal"));
}

TEST_CASE("a file that changed after it was fetched is not bundled") {
  const Bundled f;
  std::string wrong = f.files.at("model-00001-of-00003.safetensors");
  wrong[5] ^= 1;
  f.write("out/model-00001-of-00003.safetensors", wrong);
  const auto r = f.create();
  REQUIRE(!r);
  CHECK(r.error().code == Code::kContent);
  CHECK_FALSE(std::filesystem::exists(f.dir / "disk/x.bundle.SHA256SUMS"));
}

TEST_CASE("a flipped bit anywhere in a volume is found by verify, and extract gives no wrong file") {
  const Bundled f;
  REQUIRE(f.create());
  const std::string whole = *io::read_text(f.volume(2));
  for (const uint64_t at : {uint64_t{3}, uint64_t{40}, whole.size() / 2, whole.size() - 5, whole.size() - 12}) {
    f.damage(2, at);
    const auto r = f.verify();
    CHECK_MESSAGE((!r || *r == 1), "byte " << at);
    std::filesystem::remove_all(f.dir / "copy");
    (void)f.extract(f.extract_options());
    for (const auto& [path, content] : f.files) {
      const auto got = io::read_text(f.dir / "copy" / path);
      if (got) CHECK((*got == content));
    }
    REQUIRE(io::write_file_atomic(f.volume(2), whole));
  }
  CHECK(*f.verify() == 0);
}

TEST_CASE("a lost volume costs the files that lie in it") {
  const Bundled f;
  REQUIRE(f.create());
  const size_t last = f.volumes() - 1;
  REQUIRE(io::remove_file(f.volume(last)));
  CHECK(*f.verify() == 1);
  const auto r = f.extract(f.extract_options());
  REQUIRE(!r);
  CHECK(r.error().code == Code::kMissing);
  CHECK(*io::read_text(f.dir / "copy/tokenizer.json") == f.files.at("tokenizer.json"));
  // With the volume back, the rest follows.
  std::filesystem::remove_all(f.dir / "disk");
  REQUIRE(f.create());
  REQUIRE(f.extract(f.extract_options()));
  check_copy(f);
}

TEST_CASE("a selection is extracted alone, and a delta leaves out what the receiver has") {
  const Bundled f;
  REQUIRE(f.create());
  fetch::BundleExtractOptions some = f.extract_options();
  some.filter.include = {"*.json"};
  REQUIRE(f.extract(some));
  CHECK(std::filesystem::exists(f.dir / "copy/tokenizer.json"));
  CHECK_FALSE(std::filesystem::exists(f.dir / "copy/model-00001-of-00003.safetensors"));
  CHECK_FALSE(manifest::load_fetch_record(f.dir / "copy")->complete);

  manifest::Pin base;
  base.name = "older";
  base.source.repo = "org/repo";
  hub::Hub hub(f.shared());
  base.select.include = {"model-00001*"};
  const auto pin = fetch::make_pin(base, "main", hub);
  REQUIRE(pin);
  f.write("base.json", manifest::write(*pin));
  std::filesystem::remove_all(f.dir / "disk");
  fetch::BundleCreateOptions delta = f.create_options();
  delta.base = f.dir / "base.json";
  REQUIRE(f.create(delta));
  CHECK(*f.verify() == 0);
  std::filesystem::remove_all(f.dir / "copy");
  REQUIRE(f.extract(f.extract_options()));
  CHECK(std::filesystem::exists(f.dir / "copy/model-00002-of-00003.safetensors"));
  CHECK_FALSE(std::filesystem::exists(f.dir / "copy/model-00001-of-00003.safetensors"));
}

TEST_CASE("a signed pin travels with its signature") {
  const Bundled f;
  constexpr const char* kPrivate =
      "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE "
      "KEY-----\n";
  constexpr const char* kOther =
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n-----END PUBLIC "
      "KEY-----\n";
  f.write("key.pem", kPrivate);
  f.write("other.pem", kOther);
  manifest::Pin base;
  base.name = "made";
  base.source.repo = "org/repo";
  hub::Hub hub(f.shared());
  const std::string pin = manifest::write(*fetch::make_pin(base, "main", hub));
  f.write("pin.json", pin);
  f.write("pin.json.sig", *codec::sign_digest(codec::kPinDomain, codec::sha256(pin), f.dir / "key.pem"));
  fetch::BundleCreateOptions o = f.create_options();
  o.pin = f.dir / "pin.json";
  REQUIRE(f.create(o));
  CHECK(*f.verify((f.dir / "key.pem").string()) == 0);
  CHECK(f.verify((f.dir / "other.pem").string()).error().cls == "signature");
  fetch::BundleExtractOptions x = f.extract_options();
  x.key = f.dir / "other.pem";
  CHECK(f.extract(x).error().cls == "signature");
  CHECK_FALSE(std::filesystem::exists(f.dir / "copy"));

  // And get asks for it before it asks the Hub for anything.
  fetch::GetOptions g = f.options();
  g.what = (f.dir / "pin.json").string();
  g.signature_key = f.dir / "key.pem";
  REQUIRE(f.get(g));
  f.hub->clear_log();
  g.local_dir = f.dir / "elsewhere";
  f.write("pin.json", pin + " ");
  CHECK(!f.get(g));
  f.write("pin.json", pin);
  REQUIRE(io::remove_file(f.dir / "pin.json.sig"));
  CHECK(f.get(g).error().cls == "signature");
  CHECK(f.hub->log().empty());
}

TEST_CASE("a list that lies is refused") {
  fetch::BundleSizes sizes;
  const auto parse = [&](const std::string& files) {
    return fetch::parse_bundle(
        R"({"schema":"hub-bundle","version":1,"name":"x","repo":"a/b","revision":"r","left_out":[],"manifest_bytes":1,"signature_bytes":0,"files":[)" +
            files + "]}",
        sizes, "s");
  };
  const std::string digest = R"(","sha256":")" + std::string(64, 'a') + R"(","size":)";
  CHECK(parse(R"({"path":"a)" + digest + "5}"));
  for (const char* path : {"../a", "/a", "a//b", ".git/config", "a\\\\b"})
    CHECK_FALSE(parse(R"({"path":")" + std::string(path) + digest + "5}"));
  CHECK_FALSE(parse(R"({"path":"a)" + digest + "5}," + R"({"path":"a)" + digest + "5}"));
  CHECK_FALSE(parse(R"({"path":"a)" + digest + "-1}"));
  CHECK_FALSE(parse(R"({"path":"a)" + digest + "9007199254740991}"));
}

TEST_CASE("tar headers: short names, long names, sizes from 8 GiB") {
  const std::string plain = fetch::tar_header("a/b.txt", 5);
  CHECK(plain.size() == 512);
  CHECK(plain.substr(257, 5) == "ustar");
  CHECK(plain.substr(124, 11) == "00000000005");
  CHECK(fetch::tar_header(std::string(150, 'x'), 5).size() == 3 * 512);
  const std::string large = fetch::tar_header("big", uint64_t{9} << 30);
  CHECK(large.size() == 3 * 512);
  CHECK(large.find("19 size=9663676416\n") != std::string::npos);
}
