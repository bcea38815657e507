#include "tools/fetch/publish.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "fixture.h"
#include "tools/fetch/clean.h"
#include "tools/fetch/doctor.h"

using namespace dsf;
using test::FetchFixture;

namespace {

Result<int> publish(const FetchFixture& f, fetch::PublishOptions::How how = fetch::PublishOptions::How::kAuto,
                    bool versioned = false) {
  fetch::PublishOptions o;
  o.dir = f.dir / "out";
  o.dst = f.dir / "share";
  o.how = how;
  o.versioned = versioned;
  o.quiet = true;
  fetch::Events events(false);
  return fetch::run_publish(
      o, [] { return false; }, events);
}

struct stat stat_of(const std::filesystem::path& path) {
  struct stat st {};
  REQUIRE(::stat(path.c_str(), &st) == 0);
  return st;
}

// Inode and times of everything below, to see that nothing was touched.
std::string stats_below(const std::filesystem::path& dir) {
  std::string out;
  const auto names = io::list_files(dir);
  REQUIRE(names);
  for (const std::string& name : *names) {
    const struct stat st = stat_of(dir / name);
    out += name + " " + std::to_string(st.st_ino) + " " + std::to_string(st.st_mtim.tv_sec) + "." +
           std::to_string(st.st_mtim.tv_nsec) + " " + std::to_string(st.st_ctim.tv_nsec) + "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("a folder is published whole, and publishing again touches nothing") {
  const FetchFixture f;
  REQUIRE(f.get());
  const auto r = publish(f);
  REQUIRE_MESSAGE(r, r.error().line());
  for (const auto& [path, content] : f.files) CHECK((*io::read_text(f.dir / "share" / path) == content));
  const std::string script = "cd '" + (f.dir / "share").string() + "' && sha256sum --quiet -c --strict SHA256SUMS";
  CHECK(std::system(script.c_str()) == 0);  // NOLINT(concurrency-mt-unsafe,cert-env33-c): a test's own script
  // Weights are links, metadata are copies: an edit in the share cannot reach the source.
  CHECK(stat_of(f.dir / "share/model-00001-of-00003.safetensors").st_ino ==
        stat_of(f.dir / "out/model-00001-of-00003.safetensors").st_ino);
  CHECK(stat_of(f.dir / "share/config.json").st_ino != stat_of(f.dir / "out/config.json").st_ino);
  const std::string before = stats_below(f.dir / "share");
  REQUIRE(publish(f));
  CHECK(stats_below(f.dir / "share") == before);
}

TEST_CASE("a truncated or changed file of the share is replaced, and the source never is") {
  const FetchFixture f;
  REQUIRE(f.get());
  REQUIRE(publish(f, fetch::PublishOptions::How::kCopy));
  std::filesystem::resize_file(f.dir / "share/model-00002-of-00003.safetensors", 100);
  f.write("share/config.json", "{\"a\": 2}\n");
  REQUIRE(publish(f, fetch::PublishOptions::How::kCopy));
  for (const auto& [path, content] : f.files) CHECK((*io::read_text(f.dir / "share" / path) == content));

  std::string wrong = f.files.at("model-00002-of-00003.safetensors");
  wrong[9] ^= 1;
  f.write("out/model-00002-of-00003.safetensors", wrong);
  const auto refused = publish(f);
  REQUIRE(!refused);
  CHECK(refused.error().code == Code::kContent);
  CHECK((*io::read_text(f.dir / "share/model-00002-of-00003.safetensors") ==
         f.files.at("model-00002-of-00003.safetensors")));
}

TEST_CASE("a reader beside a publisher never sees an absent or short metadata file") {
  FetchFixture f;
  const std::string a = test::noise(20'000, 1), b = test::noise(30'000, 2);
  REQUIRE(f.get());
  REQUIRE(publish(f));
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0, reads = 0;
  std::thread reader([&] {
    while (!done || reads < 10'000) {
      const auto text = io::read_text(f.dir / "share/tokenizer.json");
      ++reads;
      if (!text || (*text != a && *text != b && *text != f.files.at("tokenizer.json"))) ++wrong;
    }
  });
  for (int i = 0; i < 6; ++i) {
    f.write("hub/org/repo/tokenizer.json", i % 2 == 0 ? a : b);
    f.hub->reload();
    fetch::GetOptions o = f.options();
    o.overwrite = true;
    REQUIRE(f.get(o));
    REQUIRE(publish(f));
  }
  done = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(reads >= 10'000);
}

TEST_CASE("a new revision goes beside the old one, and the link is switched") {
  FetchFixture f;
  REQUIRE(f.get());
  REQUIRE(publish(f, fetch::PublishOptions::How::kAuto, true));
  CHECK(std::filesystem::is_symlink(f.dir / "share"));
  const auto old = std::filesystem::canonical(f.dir / "share");
  f.write("hub/org/repo/config.json", "{\"a\": 2}\n");
  f.hub->reload();
  fetch::GetOptions o = f.options();
  o.overwrite = true;
  REQUIRE(f.get(o));
  REQUIRE(publish(f, fetch::PublishOptions::How::kAuto, true));
  CHECK(std::filesystem::canonical(f.dir / "share") != old);
  CHECK(*io::read_text(f.dir / "share/config.json") == "{\"a\": 2}\n");
  CHECK(*io::read_text(old / "config.json") == f.files.at("config.json"));
}

TEST_CASE("clean lists first, removes on request, and leaves what is in use") {
  const FetchFixture f;
  REQUIRE(f.get());
  f.write("out/.cache/fetch/parts/abc.part", "half");
  f.write("out/.cache/fetch/parts-77/abc.part", "half");
  f.write("out/.cache/huggingface/download/x.etag.12345678.incomplete", "old");
  f.write("out/.cache/huggingface/download/y.etag.12345678.incomplete", "new");
  std::filesystem::last_write_time(f.dir / "out/.cache/huggingface/download/x.etag.12345678.incomplete",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  fetch::Events events(false);
  const auto clean = [&](bool yes, bool state) { return fetch::run_clean({f.dir / "out", yes, state, true}, events); };
  REQUIRE(clean(false, false));
  CHECK(f.exists(".cache/fetch/parts/abc.part"));
  {
    const auto held = io::FileLock::acquire(f.dir / "out/.cache/fetch/LOCK");
    CHECK(clean(true, false).error().code == Code::kBusy);
  }
  REQUIRE(clean(true, false));
  CHECK_FALSE(f.exists(".cache/fetch/parts/abc.part"));
  CHECK_FALSE(f.exists(".cache/fetch/parts-77"));
  CHECK_FALSE(f.exists(".cache/huggingface/download/x.etag.12345678.incomplete"));
  CHECK(f.exists(".cache/huggingface/download/y.etag.12345678.incomplete"));
  CHECK(f.exists(".cache/fetch/record.json"));
  REQUIRE(clean(true, true));
  CHECK_FALSE(f.exists(".cache/fetch"));
  CHECK(f.exists("config.json"));
}

TEST_CASE("doctor reads a byte of both kinds of file, and its code is that of the worst finding") {
  const FetchFixture f;
  fetch::DoctorOptions o;
  o.repo = "org/repo";
  o.local_dir = f.dir / "out";
  o.json = true;
  CHECK(*fetch::run_doctor(o, f.shared()) == 0);
  uint64_t ranged = 0;
  for (const auto& e : f.hub->log()) ranged += e.host == "cdn" && e.bytes == 1 ? 1 : 0;
  CHECK(ranged == 1);
  o.repo = "org/none";
  CHECK(*fetch::run_doctor(o, f.shared()) == static_cast<int>(Code::kRefused));
  CHECK(*fetch::run_doctor(o, f.shared("wrong")) == static_cast<int>(Code::kRefused));
  f.hub->stop();
  CHECK(*fetch::run_doctor(o, f.shared()) == static_cast<int>(Code::kRemote));
}
