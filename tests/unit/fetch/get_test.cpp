#include <doctest/doctest.h>

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "fixture.h"

using namespace dsf;
using test::FetchFixture;

namespace {

uint64_t cdn_bytes(const FetchFixture& f) {
  uint64_t n = 0;
  for (const auto& e : f.hub->log()) n += e.host == "cdn" ? e.bytes : 0;
  return n;
}

// Of answers with the range that was asked for. A client refuses any other by its headers, and how much of it the server
// still pushed into the socket's buffers says nothing of the client.
uint64_t ranged_bytes(const FetchFixture& f) {
  uint64_t n = 0;
  for (const auto& e : f.hub->log()) n += e.host == "cdn" && e.status == 206 ? e.bytes : 0;
  return n;
}

void check_fails(const FetchFixture& f, Code code, std::string_view cls) {
  const auto r = f.get();
  REQUIRE(!r);
  CHECK(r.error().code == code);
  CHECK_MESSAGE(r.error().cls == cls, r.error().line());
}

}  // namespace

TEST_CASE("a fresh get brings every byte, a record and what the public client reads") {
  const FetchFixture f;
  const auto r = f.get();
  REQUIRE_MESSAGE(r, r.error().line());
  f.check_complete();
  const auto record = manifest::load_fetch_record(f.dir / "out");
  REQUIRE_MESSAGE(record, record.error().line());
  CHECK(record->files.size() == f.files.size());
  CHECK(record->complete);
  CHECK(record->repo == "org/repo");
  for (const auto& file : record->files) {
    CHECK(file.sha256 == codec::sha256(f.files.at(file.path)).hex());
    CHECK(file.verified == "received");
  }
  const std::string commit = *f.hub->commit_of("org/repo");
  CHECK(record->revision == commit);
  const std::string metadata = f.read(".cache/huggingface/download/model-00001-of-00003.safetensors.metadata");
  CHECK(
      metadata.starts_with(commit + "\n" + codec::sha256(f.files.at("model-00001-of-00003.safetensors")).hex() + "\n"));
  CHECK(f.exists(".cache/huggingface/trees/" + commit + ".json"));
  // Bounded ranges only, also for the first byte, and one resolve a file.
  for (const auto& e : f.hub->log()) {
    if (e.host == "cdn") CHECK(e.range.starts_with("bytes="));
  }
  const auto log = f.hub->log();
  CHECK(std::count_if(log.begin(), log.end(), [](const auto& e) { return e.method == "HEAD"; }) == 3);
}

TEST_CASE("a second get transfers nothing, writes nothing and succeeds") {
  const FetchFixture f;
  REQUIRE(f.get());
  const std::string record = f.read(".cache/fetch/record.json");
  f.hub->clear_log();
  REQUIRE(f.get());
  CHECK(cdn_bytes(f) == 0);
  CHECK(f.read(".cache/fetch/record.json") == record);
  // Without the record the files are hashed and adopted.
  REQUIRE(io::remove_file(f.dir / "out/.cache/fetch/record.json"));
  REQUIRE(f.get());
  CHECK(cdn_bytes(f) == 0);
  CHECK(manifest::load_fetch_record(f.dir / "out")->files.at(0).origin == "adopted");
}

TEST_CASE("include, exclude and names choose files, and choosing nothing is an error") {
  const FetchFixture f;
  fetch::GetOptions o = f.options();
  o.filter.include = {"*.json"};
  o.filter.exclude = {"token*"};
  REQUIRE(f.get(o));
  CHECK(f.exists("config.json"));
  CHECK_FALSE(f.exists("tokenizer.json"));
  CHECK_FALSE(f.exists("empty.txt"));
  CHECK_FALSE(manifest::load_fetch_record(f.dir / "out")->complete);
  o = f.options();
  o.paths = {"empty.txt"};
  REQUIRE(f.get(o));
  CHECK(f.exists("empty.txt"));
  CHECK(manifest::load_fetch_record(f.dir / "out")->files.size() == 2);  // the earlier file stays in the record
  o.paths = {"none.bin"};
  CHECK(f.get(o).error().code == Code::kMissing);
  o = f.options();
  o.filter.include = {"*.gguf"};
  CHECK(f.get(o).error().code == Code::kUsage);
}

TEST_CASE("a dry run makes API calls only") {
  const FetchFixture f;
  fetch::GetOptions o = f.options();
  o.dry_run = true;
  REQUIRE(f.get(o));
  CHECK_FALSE(std::filesystem::exists(f.dir / "out"));
  CHECK(cdn_bytes(f) == 0);
}

TEST_CASE("transient faults are survived without a byte wrong or twice") {
  struct Case {
    const char* action;
    int64_t n;
    const char* text;
  };
  const FetchFixture f;
  for (const Case& c : std::initializer_list<Case>{{"drop_after", 10'000, ""},
                                                   {"close_after", 70'000, ""},
                                                   {"status", 503, "0"},
                                                   {"status", 500, ""},
                                                   {"rate", 0, "0"},
                                                   {"rate", 0, ""},
                                                   {"short", 100, ""},
                                                   {"long", 100, ""},
                                                   {"ignore_range", 0, ""},
                                                   {"wrong_content_range", 0, ""},
                                                   {"wrong_total", 0, ""},
                                                   {"reject_sig", 0, ""},
                                                   {"stall", 1000, ""},
                                                   {"etag_change", 0, ""}}) {
    CAPTURE(c.action);
    std::filesystem::remove_all(f.dir / "out");
    f.hub->clear_faults();
    f.hub->clear_log();
    f.fault(c.action, c.n, 3, "cdn", "", c.text);
    const auto r = f.get();
    REQUIRE_MESSAGE(r, c.action << ": " << r.error().line());
    f.check_complete();
    // Of the two faults in Content-Range as well, three times at most.
    CHECK(ranged_bytes(f) < 3'300'000);
  }
}

TEST_CASE("a flipped byte heals once, and for ever is a digest error without a final file") {
  const FetchFixture f;
  f.fault("flip", 1000, 1, "cdn", "model-00001");
  REQUIRE(f.get());
  f.check_complete();

  const FetchFixture g;
  g.fault("flip", 1000, -1, "cdn", "model-00001");
  check_fails(g, Code::kContent, "digest_mismatch");
  CHECK_FALSE(g.exists("model-00001-of-00003.safetensors"));
  CHECK(g.read("model-00002-of-00003.safetensors") == g.files.at("model-00002-of-00003.safetensors"));
  CHECK(io::list_files(g.dir / "out/.cache/fetch/parts")->empty());
  g.hub->clear_faults();
  REQUIRE(g.get());
  g.check_complete();
}

TEST_CASE("a wrong git file is caught as well") {
  const FetchFixture f;
  f.fault("flip", 3, -1, "hub", "tokenizer.json");
  check_fails(f, Code::kContent, "digest_mismatch");
  CHECK_FALSE(f.exists("tokenizer.json"));
}

TEST_CASE("what stays wrong ends with the class that helps") {
  struct Case {
    const char *host, *action, *path;
    int64_t n;
    Code code;
    const char* cls;
  };
  const FetchFixture f;
  for (const Case& c : std::initializer_list<Case>{{"cdn", "status", "", 503, Code::kRemote, "transient"},
                                                   {"cdn", "rate", "", 0, Code::kRemote, "rate"},
                                                   {"cdn", "ignore_range", "model-00001", 0, Code::kRemote, "range"},
                                                   {"cdn", "html", "", 0, Code::kRemote, "not_hub"},
                                                   {"cdn", "reject_sig", "", 0, Code::kRemote, "expired"},
                                                   {"hub", "linked_change", "/resolve/", 0, Code::kContent, "changed"},
                                                   {"hub", "commit_change", "/resolve/", 0, Code::kContent, "changed"},
                                                   {"hub", "missing_header", "/resolve/", 0, Code::kRemote, "not_hub"},
                                                   {"hub", "redirect_loop", "model", 0, Code::kRemote, "redirect"},
                                                   {"hub", "page_loop", "/tree/", 0, Code::kRemote, "protocol"},
                                                   {"hub", "status", "cursor", 500, Code::kRemote, "transient"},
                                                   {"hub", "dup_path", "/tree/", 0, Code::kContent, "listing"},
                                                   {"hub", "status", "/api/", 401, Code::kRefused, "not_found_or_auth"},
                                                   {"hub", "status", "/api/", 404, Code::kRefused, "not_found"}}) {
    CAPTURE(c.action);
    std::filesystem::remove_all(f.dir / "out");
    f.hub->clear_faults();
    f.fault(c.action, c.n, -1, c.host, std::string(c.path) == "cursor" ? "/tree/" : c.path,
            c.action == std::string("rate") ? "0" : "");
    check_fails(f, c.code, c.cls);
    CHECK_FALSE(f.exists("model-00001-of-00003.safetensors"));
  }
}

TEST_CASE("names that would leave the folder are refused before anything is written") {
  const FetchFixture f;
  for (const char* name : {"../evil", "/etc/evil", "a//b", "C:\\x", ".git/config", ".cache/x", "a/../../b"}) {
    f.hub->clear_faults();
    f.fault("bad_path", 0, -1, "hub", "/tree/", name);
    const auto r = f.get();
    REQUIRE_MESSAGE(!r, name);
    CHECK(r.error().code == Code::kContent);
    CHECK_FALSE(std::filesystem::exists(f.dir / "out"));
    CHECK_FALSE(std::filesystem::exists(f.dir / "evil"));
  }
}

TEST_CASE("a symbolic link inside the folder is not followed") {
  const FetchFixture f;
  REQUIRE(io::make_dirs(f.dir / "out"));
  REQUIRE(io::make_dirs(f.dir / "elsewhere"));
  std::filesystem::create_directory_symlink(f.dir / "elsewhere", f.dir / "out/sub");
  const auto r = f.get();
  REQUIRE(!r);
  CHECK(r.error().code == Code::kLocal);
  CHECK(std::filesystem::is_empty(f.dir / "elsewhere"));
}

TEST_CASE("the token goes to the Hub and to nobody else") {
  const FetchFixture f;
  f.write("hub/org/repo/.hub.json", R"({"private": true})");
  check_fails(f, Code::kRefused, "not_found_or_auth");
  CHECK(f.get(f.options(), "wrong").error().cls == "auth");
  f.hub->clear_log();
  REQUIRE(f.get(f.options(), "hf_good"));
  f.check_complete();
  size_t with = 0;
  for (const auto& e : f.hub->log()) {
    if (e.host == "cdn") CHECK(e.authorization.empty());
    with += e.authorization.empty() ? 0 : 1;
  }
  CHECK(with > 0);
  const auto all = io::list_files(f.dir / "out");
  for (const std::string& path : *all) CHECK(f.read(path).find("hf_good") == std::string::npos);
}

TEST_CASE("another port of the same host is another origin") {
  loopback_hub::Options same_host;
  same_host.cdn_host = "127.0.0.1";
  const FetchFixture f(same_host);
  REQUIRE(f.get(f.options(), "hf_good"));  // the storage refuses any request that carries a token
  f.check_complete();
}

TEST_CASE("a gated repository says what to do") {
  const FetchFixture f;
  f.write("hub/org/repo/.hub.json", R"({"gated": "auto"})");
  check_fails(f, Code::kRefused, "gated");
  REQUIRE(f.get(f.options(), "hf_good"));
}

TEST_CASE("short-lived URLs are renewed, and the internal redirect of git files is followed") {
  loopback_hub::Options options;
  options.resolve_cache = true;
  options.url_lifetime_s = 1;
  const FetchFixture f(options);
  f.fault("slow", 200'000, 6, "cdn", "model-00001");
  const auto r = f.get();
  REQUIRE_MESSAGE(r, r.error().line());
  f.check_complete();
}

TEST_CASE("two processes do not share a folder") {
  const FetchFixture f;
  REQUIRE(io::make_dirs(f.dir / "out/.cache/fetch"));
  const auto held = io::FileLock::acquire(f.dir / "out/.cache/fetch/LOCK");
  REQUIRE(held);
  const auto r = f.get();
  REQUIRE(!r);
  CHECK(r.error().code == Code::kBusy);
}

TEST_CASE("other content under a wanted name stops the run, or is put aside") {
  const FetchFixture f;
  f.write("out/config.json", "mine");
  check_fails(f, Code::kLocal, "conflict");
  CHECK(f.read("config.json") == "mine");
  fetch::GetOptions o = f.options();
  o.overwrite = true;
  REQUIRE(f.get(o));
  f.check_complete();
  const auto aside = io::list_files(f.dir / "out/.cache/fetch/replaced");
  REQUIRE(aside);
  CHECK(aside->size() == 1);
}

TEST_CASE("offline succeeds with everything there and ends with 9 otherwise") {
  const FetchFixture f;
  fetch::GetOptions o = f.options();
  o.offline = true;
  CHECK(f.get(o).error().code == Code::kOffline);
  REQUIRE(f.get());
  f.hub->clear_log();
  REQUIRE(f.get(o));
  CHECK(f.hub->log().empty());
  REQUIRE(io::remove_file(f.dir / "out/config.json"));
  CHECK(f.get(o).error().code == Code::kOffline);
}

TEST_CASE("too little space is said before the first byte") {
  const FetchFixture f;
  fetch::GetOptions o = f.options();
  o.reserve_bytes = uint64_t{1} << 60;
  const auto r = f.get(o);
  REQUIRE(!r);
  CHECK(r.error().cls == "no_space");
  CHECK(cdn_bytes(f) == 0);
}

TEST_CASE("names as long as the file system allows") {
  FetchFixture f;
  for (const size_t n : {242, 251}) {  // the public client's ".metadata" fits behind the first alone
    const std::string name = "sub/" + std::string(n, 'n') + ".txt";
    f.files[name] = "long\n";
    f.write("hub/org/repo/" + name, "long\n");
  }
  const auto r = f.get();
  REQUIRE_MESSAGE(r, r.error().line());
  f.check_complete();
}
