// What the machine and the network around a download may be like: read-only, full, shared, behind a proxy, slow.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/io/file.h"
#include "dsf/io/page_cache.h"
#include "dsf/manifest/record.h"
#include "fixture.h"
#include "program.h"
#include "tools/fetch/existing.h"

using namespace dsf;
using test::FetchFixture;
using test::Program;

namespace {

const std::string kBig = "big.safetensors";

void add_big(FetchFixture& f, size_t bytes) {
  f.files[kBig] = test::noise(bytes, 9);
  f.write("hub/org/repo/" + kBig, f.files[kBig]);
}

size_t count(const FetchFixture& f, const std::string& method, const std::string& in_target) {
  const auto log = f.hub->log();
  return static_cast<size_t>(std::count_if(log.begin(), log.end(), [&](const auto& e) {
    return e.method == method && e.target.find(in_target) != std::string::npos;
  }));
}

// One file through the engine alone, with an observer of its own.
fetch::EngineOutcome engine_run(const FetchFixture& f, const fetch::EngineOptions& options,
                                const fetch::Observer& observer) {
  const std::string commit = *f.hub->commit_of("org/repo");
  hub::Hub hub(f.shared());
  const auto entries = hub.list("org/repo", commit);
  REQUIRE(entries);
  const auto it = std::find_if(entries->begin(), entries->end(),
                               [](const auto& e) { return e.path.find("00001") != std::string::npos; });
  const fetch::Wanted wanted{*it};
  const fetch::Target target(f.dir / "out");
  REQUIRE(target.prepare());
  return fetch::run_engine({&wanted}, "org/repo", commit, target, f.shared(), options, observer);
}

}  // namespace

TEST_CASE("later ranges carry the storage's own tag, and another tag makes the Hub say again what the content is") {
  const FetchFixture f;
  fetch::GetOptions o = f.options();
  o.engine.connections = 1;
  REQUIRE(f.get(o));
  const auto log = f.hub->log();
  CHECK(std::any_of(log.begin(), log.end(),
                    [](const auto& e) { return e.host == "cdn" && e.if_range.starts_with("\"storage-"); }));
  CHECK(std::all_of(log.begin(), log.end(), [](const auto& e) { return e.host == "cdn" || e.if_range.empty(); }));

  std::filesystem::remove_all(f.dir / "out");
  f.hub->clear_log();
  f.fault("etag_change", 0, 1, "cdn", "model-00001");
  const auto r = f.get(o);
  REQUIRE_MESSAGE(r, r.error().line());
  f.check_complete();
  CHECK(count(f, "HEAD", "model-00001") == 2);
}

TEST_CASE("finished files and the hashed part of a running one are not left in the page cache") {
  FetchFixture f;
  add_big(f, 8 << 20);
  loopback_hub::Fault slow_end;
  slow_end.action = "slow";
  slow_end.n = 100'000;
  slow_end.host = "cdn";
  slow_end.path_contains = kBig;
  slow_end.range_contains = "-" + std::to_string((8 << 20) - 1);
  f.hub->add_fault(slow_end);
  Result<int> result = 0;
  std::thread run([&] { result = f.get(); });
  // All but the last range is there and hashed; what was written before must leave the cache.
  uint64_t least = 8 << 20;
  for (int i = 0; i < 200 && least > 2 * kMiB; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto parts = io::list_files(f.dir / "out/.cache/fetch/parts");
    if (!parts) continue;
    for (const std::string& name : *parts) {
      const auto path = f.dir / "out/.cache/fetch/parts" / name;
      const auto journal =
          io::read_text(f.dir / "out/.cache/fetch/parts" / (name.substr(0, name.rfind('.')) + ".journal"));
      if (!name.ends_with(".part") || !journal || std::count(journal->begin(), journal->end(), '\n') < 100) continue;
      if (const auto resident = io::resident_bytes(path)) least = std::min(least, *resident);
    }
  }
  run.join();
  REQUIRE_MESSAGE(result, result.error().line());
  CHECK(least <= 2 * kMiB);
  const auto resident = io::resident_bytes(f.dir / "out" / kBig);
  REQUIRE(resident);
  CHECK(*resident <= 256 * kKiB);
  f.check_complete();
}

TEST_CASE("names that differ only in case, and names that other systems cannot hold") {
  FetchFixture f;
  f.files["Config.json"] = "other\n";
  f.files["aux.txt"] = "reserved elsewhere\n";
  f.write("hub/org/repo/Config.json", "other\n");
  f.write("hub/org/repo/aux.txt", "reserved elsewhere\n");
  REQUIRE(f.get());  // this file system tells them apart
  f.check_complete();
  fetch::GetOptions o = f.options();
  o.local_dir = f.dir / "portable";
  o.portable = true;
  CHECK(f.get(o).error().cls == "not_portable");
  const auto collision = fetch::check_names({"a/Config.json", "a/config.json", "b"}, true, false);
  REQUIRE(!collision);
  CHECK(collision.error().cls == "case_collision");
  CHECK(fetch::check_names({"a/Config.json", "a/config.json", "b"}, false, true));
}

TEST_CASE("a read-only folder that is complete is success without a write, an incomplete one names what is missing") {
  if (!test::may_mount()) return test::skip("read-only folder", "mounting is not permitted here");
  const FetchFixture f;
  REQUIRE(f.get());
  const std::string run =
      "mount --bind \"$OUT\" \"$OUT\"; mount -o remount,ro,bind \"$OUT\"; \"$FETCH\" get org/repo --local-dir \"$OUT\" "
      "--quiet";
  CHECK(test::in_mount_namespace(f, run).code() == 0);
  REQUIRE(io::remove_file(f.dir / "out/.cache/fetch/record.json"));
  CHECK(test::in_mount_namespace(f, run).code() == 0);  // all hashed
  REQUIRE(io::remove_file(f.dir / "out/config.json"));
  const auto incomplete = test::in_mount_namespace(f, run);
  CHECK(incomplete.code() == 6);
  CHECK_MESSAGE(incomplete.err.find("config.json: is missing") != std::string::npos, incomplete.err);
}

TEST_CASE("a disk that is full before the start and in the middle, then has room again") {
  if (!test::may_mount()) return test::skip("full disk", "mounting is not permitted here");
  FetchFixture f;
  REQUIRE(io::make_dirs(f.dir / "out"));
  const std::string get =
      "\"$FETCH\" get org/repo --local-dir \"$OUT\" --quiet --reserve 0 --piece 64KiB -j 2 --files 1 --no-token";
  const auto done =
      test::in_mount_namespace(f,
                               "mount -t tmpfs -o size=2m none \"$OUT\"; head -c 1500000 /dev/zero > \"$OUT/filler\"\n"
                               "code=0; " +
                                   get +
                                   " || code=$?; [ $code = 6 ] || exit 101\n"  // said before the first byte
                                   "code=0; " +
                                   get +
                                   " --no-space-check || code=$?; [ $code = 6 ] || exit 102\n"
                                   "[ ! -e \"$OUT/model-00001-of-00003.safetensors\" ] || exit 103\n"
                                   "[ -e \"$OUT/config.json\" ] || exit 104\n"
                                   "rm \"$OUT/filler\"; " +
                                   get +
                                   " || exit 105\n"
                                   "cd \"$OUT\"; sha256sum model-0000* | sha256sum > ../sums");
  CHECK_MESSAGE(done.code() == 0, done.err);
  CHECK(done.err.find("needs") != std::string::npos);
  CHECK(done.err.find("No space left") != std::string::npos);
}

TEST_CASE("a file size limit is a local error, not a death by signal") {
  const FetchFixture f;
  Program p(f);
  p.limit_bytes = 200 * 512;
  const auto done = p.run();
  CHECK_MESSAGE(done.code() == 6, done.err);
}

TEST_CASE("a second process is told who works in the folder, and waits when asked to") {
  FetchFixture f;
  add_big(f, 2 << 20);
  f.fault("slow", 1'000'000, -1, "cdn", "big");
  const Program first(f);
  const pid_t pid = first.start();
  while (!std::filesystem::exists(f.dir / "out/.cache/fetch/OWNER"))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto second = Program(f).run();
  CHECK(second.code() == 7);
  CHECK_MESSAGE(second.err.find(" " + std::to_string(pid) + " ") != std::string::npos, second.err);
  Program patient(f);
  patient.args = {"--wait", "60s"};
  CHECK(patient.run().code() == 0);
  CHECK(first.wait(pid).code() == 0);
  f.check_complete();
}

TEST_CASE("two processes whose locks are fake never mix bytes") {
  FetchFixture f;
  add_big(f, 3 << 20);
  f.fault("slow", 2'000'000, -1, "cdn", "big");
  f.fault("flip", 500'000, 1, "cdn", "model-00001");  // one of them has to fetch it twice; both flips on one would fail it
  Program p(f);
  p.env = {"LD_PRELOAD=" DSF_NOFLOCK, "ASAN_OPTIONS=verify_asan_link_order=0"};  // a sanitizer wants to be the first
  const pid_t a = p.start(), b = p.start();
  const auto first = p.wait(a), second = p.wait(b);
  CHECK_MESSAGE(first.code() == 0, first.err);
  CHECK_MESSAGE(second.code() == 0, second.err);
  CHECK((first.err + second.err).find("keeping apart") != std::string::npos);
  f.check_complete();
  CHECK_FALSE(f.exists(".cache/fetch/OWNER"));
  for (const auto& e : std::filesystem::directory_iterator(f.dir / "out/.cache/fetch"))
    CHECK_FALSE(e.path().filename().string().starts_with("parts-"));
}

TEST_CASE("a proxy is used for other hosts, and its password is not said") {
  const FetchFixture f;
  // The Hub itself plays the proxy: it takes the absolute form of a request.
  const std::string port = f.hub->endpoint().substr(f.hub->endpoint().rfind(':') + 1);
  Program p(f);
  p.env = {"HF_ENDPOINT=http://hub.example", "http_proxy=http://user:secret@127.0.0.1:" + port};
  p.args = {"-v"};
  const auto done = p.run();
  CHECK_MESSAGE(done.code() == 0, done.err);
  f.check_complete();
  CHECK(done.err.find("127.0.0.1:" + port) != std::string::npos);
  CHECK(done.err.find("secret") == std::string::npos);
  Program direct(f);
  direct.env = {"HF_ENDPOINT=http://hub.example", "http_proxy=http://127.0.0.1:" + port, "no_proxy=hub.example"};
  direct.args = {"--retries", "1", "--force"};
  CHECK(direct.run().code() == 3);  // the name does not exist
}

TEST_CASE("silence on all connections is noticed, and the places are asked for again") {
  const FetchFixture f;
  f.fault("stall", 1000, 3, "cdn");  // one range alone bears three
  int stalls = 0;
  fetch::Observer observer;
  observer.on_stall = [&](int64_t) { ++stalls; };
  fetch::EngineOptions o = f.options().engine;
  o.watchdog_us = 100'000;
  const auto results = engine_run(f, o, observer);
  CHECK_MESSAGE(results.files.at(0).ok, results.files.at(0).error.line());
  CHECK(stalls > 0);
}

TEST_CASE("connections that fail by the dozen become fewer") {
  const FetchFixture f;
  f.fault("status", 503, 3, "cdn", "", "0");  // one range alone bears three
  int now = 0;
  fetch::Observer observer;
  observer.on_fewer_connections = [&](int n) { now = n; };
  const auto results = engine_run(f, f.options().engine, observer);
  CHECK_MESSAGE(results.files.at(0).ok, results.files.at(0).error.line());
  CHECK(now > 0);
  CHECK(now < 4);
}

TEST_CASE("files can be read back from the device, and chosen by role") {
  const FetchFixture f;
  fetch::GetOptions o = f.options();
  o.verify_after = fetch::GetOptions::VerifyAfter::kAlways;
  o.roles = {manifest::Role::kWeights};
  REQUIRE(f.get(o));
  const auto record = manifest::load_fetch_record(f.dir / "out");
  REQUIRE(record);
  CHECK(record->files.size() == 3);
  for (const auto& file : record->files) CHECK(file.verified == "stored");
}

TEST_CASE("a speed limit holds for all connections together") {
  FetchFixture f;
  add_big(f, 4 << 20);
  Program p(f);
  p.args = {"--limit-rate", "3MB", "--include", kBig};
  const int64_t start = monotonic_ns();
  CHECK(p.run().code() == 0);
  CHECK(monotonic_ns() - start > 1'000'000'000);  // 1.4 s are due; without, it takes milliseconds
}
