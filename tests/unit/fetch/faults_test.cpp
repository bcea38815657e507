// Every fault of the loopback Hub and every reported problem that a download can meet. docs/faults.md is this test's
// output: the test fails when the two differ, and writes the page when DSF_UPDATE_DOCS is set.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/io/file.h"
#include "fixture.h"
#include "tls_front.h"

using namespace dsf;
using test::FetchFixture;

namespace {

const std::string kShard = "model-00001-of-00003.safetensors";

// What became of a run: "complete" when every byte is there, else the exit code and class.
std::string verdict(const FetchFixture& f, const Result<int>& r, const std::string& out = "out") {
  bool whole = true, wrong = false;
  for (const auto& [path, content] : f.files) {
    const auto text = io::read_text(f.dir / out / path);
    whole = whole && text && *text == content;
    wrong = wrong || (text && *text != content);
  }
  CHECK_FALSE(wrong);  // a final name never holds anything but the right bytes
  if (r) return whole ? "0, every byte right" : "0, INCOMPLETE";
  CHECK_MESSAGE(!r.error().what.empty(), r.error().line());
  return std::to_string(static_cast<int>(r.error().code)) + ", `" + r.error().cls + "`";
}

struct Scenario {
  std::string name, times;
  std::function<std::string()> run;
};

// A fault rule on the plain fixture.
Scenario rule(const std::string& name, const std::string& times, loopback_hub::Fault fault) {
  return {name, times, [fault] {
            const FetchFixture f;
            f.hub->add_fault(fault);
            return verdict(f, f.get());
          }};
}

void add_answers(std::vector<Scenario>& out) {
  out.push_back(rule("`drop_after`: reset in the middle", "3", test::make_fault("drop_after", 10'000, 3)));
  out.push_back(rule("`close_after`: closed before the length", "3", test::make_fault("close_after", 70'000, 3)));
  for (const int status : {500, 502, 503, 504, 408, 520})
    out.push_back(rule("`status` " + std::to_string(status), "3", test::make_fault("status", status, 3)));
  out.push_back(rule("`status` 503 with Retry-After", "3", test::make_fault("status", 503, 3, "cdn", "", "0")));
  out.push_back(rule("`status` 503", "for ever", test::make_fault("status", 503, -1)));
  out.push_back(rule("`rate` 429 with RateLimit t=", "2", test::make_fault("rate", 0, 2)));
  out.push_back(
      rule("`rate` 429, Retry-After in seconds", "2", test::make_fault("rate", 0, 2, "hub", "/resolve/", "0")));
  out.push_back(rule("`rate` 429, Retry-After as a date", "2",
                     test::make_fault("rate", 0, 2, "hub", "/resolve/", "Mon, 30 Nov 2020 07:00:00 GMT")));
  out.push_back(rule("`rate` 429", "for ever", test::make_fault("rate", 0, -1, "cdn", "", "0")));
  out.push_back(rule("`short`: shorter length and body", "3", test::make_fault("short", 100, 3)));
  out.push_back(rule("`long`: more bytes than asked for", "3", test::make_fault("long", 100, 3)));
  out.push_back(rule("`ignore_range`: 200 with the whole file", "3", test::make_fault("ignore_range", 0, 3)));
  out.push_back(rule("`ignore_range`", "for ever", test::make_fault("ignore_range", 0, -1, "cdn", "model-00001")));
  out.push_back(rule("`wrong_content_range`: shifted by one", "3", test::make_fault("wrong_content_range", 0, 3)));
  out.push_back(rule("`wrong_total`: other total", "3", test::make_fault("wrong_total", 0, 3)));
  out.push_back(rule("`etag_change`: other tag of the storage", "1", test::make_fault("etag_change", 0, 1)));
  out.push_back(rule("`linked_change`: other digest on the Hub", "for ever",
                     test::make_fault("linked_change", 0, -1, "hub", "/resolve/")));
  out.push_back(rule("`commit_change`: other commit on the Hub", "for ever",
                     test::make_fault("commit_change", 0, -1, "hub", "/resolve/")));
  out.push_back(rule("`missing_header`: no X-Repo-Commit", "for ever",
                     test::make_fault("missing_header", 0, -1, "hub", "/resolve/")));
  out.push_back(rule("`flip`: one bit", "1", test::make_fault("flip", 1000, 1, "cdn", "model-00001")));
  out.push_back(rule("`flip`", "for ever", test::make_fault("flip", 1000, -1, "cdn", "model-00001")));
  out.push_back(rule("`flip` in a git file", "for ever", test::make_fault("flip", 3, -1, "hub", "tokenizer.json")));
  out.push_back(rule("`slow`: 400 KB/s", "for ever", test::make_fault("slow", 400'000, -1, "cdn", "model-00001")));
  out.push_back(rule("`stall`: silence with the connection open", "2", test::make_fault("stall", 1000, 2)));
  out.push_back(rule("`global_stall`: silence on all connections", "for ever", test::make_fault("stall", 1000, -1)));
  out.push_back(rule("`reject_sig`: 403 for a valid URL", "3", test::make_fault("reject_sig", 0, 3)));
  out.push_back(rule("`reject_sig`", "for ever", test::make_fault("reject_sig", 0, -1)));
  out.push_back(rule("`range_limit`: 403 for ranges over 100 kB", "for ever",
                     test::make_fault("range_limit", 100'000, -1, "cdn", "model-00001")));
  out.push_back(rule("`html`: a captive portal's page", "for ever", test::make_fault("html", 0, -1)));
  out.push_back(rule("`pointer`: the LFS pointer as content", "for ever", test::make_fault("pointer", 0, -1, "cdn")));
}

void add_listing(std::vector<Scenario>& out) {
  out.push_back(rule("`page_loop`: a next page that is the same page", "for ever",
                     test::make_fault("page_loop", 0, -1, "hub", "/tree/")));
  out.push_back(rule("`page_error`: 500 on the second page", "for ever",
                     test::make_fault("status", 500, -1, "hub", "/tree/", "", 2)));
  out.push_back(
      rule("`page_error`: 500 on the second page", "1", test::make_fault("status", 500, 1, "hub", "/tree/", "", 2)));
  out.push_back(rule("`dup_path`: a name twice", "for ever", test::make_fault("dup_path", 0, -1, "hub", "/tree/")));
  for (const std::string& path :
       {std::string("../x"), std::string("a//b"), std::string("C:\\x"), std::string("nul\0byte", 8),
        std::string(300, 'x'), std::string(".git/config"), std::string("/etc/x")}) {
    const std::string shown = path.size() > 50                       ? "a name of 300 bytes"
                              : path.find('\0') != std::string::npos ? "a NUL byte"
                                                                     : path;
    out.push_back(rule("`bad_path`: " + shown, "for ever", test::make_fault("bad_path", 0, -1, "hub", "/tree/", path)));
  }
  out.push_back({"`case_pair`: names that differ in case alone", "for ever", [] {
                   FetchFixture f;
                   f.files["Config.json"] = "other\n";
                   f.write("hub/org/repo/Config.json", "other\n");
                   return verdict(f, f.get());
                 }});
}

void add_redirects(std::vector<Scenario>& out) {
  out.push_back(rule("`redirect_loop`", "for ever", test::make_fault("redirect_loop", 0, -1, "hub", "model")));
  out.push_back({"`redirect_external`: to a stranger's host, with a token", "for ever", [] {
                   const FetchFixture f, stranger;
                   f.fault("redirect_external", 0, -1, "hub", "model-00001", stranger.hub->cdn_origin() + "/x");
                   const auto r = f.get(f.options(), "hf_good");
                   CHECK_FALSE(stranger.hub->log().empty());
                   for (const auto& e : stranger.hub->log()) CHECK(e.authorization.empty());
                   return verdict(f, r);
                 }});
  out.push_back({"`expire`: URLs that live one second", "for ever", [] {
                   loopback_hub::Options options;
                   options.url_lifetime_s = 1;
                   const FetchFixture f(options);
                   f.fault("slow", 300'000, 8, "cdn", "model-00001");
                   return verdict(f, f.get());
                 }});
}

// The Hub behind TLS; its storage stays plain, so only files that the Hub serves itself can come.
std::string over_tls(bool with_ca, int resets, const std::vector<std::string>& include, int* connections = nullptr) {
  const FetchFixture f;
  const std::string plain = f.hub->endpoint();
  test::TlsFront front(static_cast<uint16_t>(*parse_u64(plain.substr(plain.rfind(':') + 1))), f.dir / "ca.pem");
  front.reset_next(resets);
  auto shared = f.shared();
  hub::Settings s = shared->settings;
  s.endpoint = front.endpoint();
  if (with_ca) s.http.ca_bundle = (f.dir / "ca.pem").string();
  fetch::GetOptions o = f.options();
  o.filter.include = include;
  fetch::Events events(false);
  const auto r = fetch::run_get(o, std::make_shared<hub::Shared>(s, shared->retry), events);
  if (connections != nullptr) *connections = front.connections();
  if (!r) return std::to_string(static_cast<int>(r.error().code)) + ", `" + r.error().cls + "`";
  CHECK(f.read("config.json") == f.files.at("config.json"));
  return "0, every byte right";
}

void add_tls(std::vector<Scenario>& out) {
  out.push_back(
      {"TLS with an authority of one's own (`--cacert`)", "for ever", [] { return over_tls(true, 0, {"*.json"}); }});
  out.push_back({"`tls_bad_cert`: unknown authority", "for ever", [] {
                   int connections = 0;
                   const std::string v = over_tls(false, 0, {"*.json"}, &connections);
                   CHECK(connections == 1);  // permanent: no second attempt
                   return v;
                 }});
  out.push_back({"`tls_reset`: broken handshakes", "2", [] { return over_tls(true, 2, {"*.json"}); }});
  out.push_back({"`redirect_http`: from https to http", "for ever", [] { return over_tls(true, 0, {kShard}); }});
}

std::string page_of_faults() {
  std::vector<Scenario> scenarios;
  add_answers(scenarios);
  add_listing(scenarios);
  add_redirects(scenarios);
  add_tls(scenarios);
  std::string out = "| fault | how often | what becomes of `dsf-fetch get` |\n| --- | --- | --- |\n";
  for (const Scenario& s : scenarios) {
    INFO(s.name, " ", s.times);
    out += "| " + s.name + " | " + s.times + " | " + s.run() + " |\n";
  }
  return out;
}

// A row of the bug table: what was reported, and the test that meets it ("fault: ..." is a row of the table above).
struct Bug {
  const char *rows, *symptom, *where;
};
const std::vector<Bug> kBugs = {
    {"1, 3, 54", "right size, wrong content", "fault: `flip`"},
    {"2", "a killed download starts from zero, orphans pile up",
     "a process killed at any moment leaves nothing wrong, and the next one fetches one piece a connection again"},
    {"2", "orphans are listed and removed", "clean lists first, removes on request, and leaves what is in use"},
    {"4", "locks that succeed for everybody", "two processes whose locks are fake never mix bytes"},
    {"6, 39", "Range ignored, 200 appended", "fault: `ignore_range`: 200 with the whole file"},
    {"7, 40", "empty ranges, 416", "a fresh get brings every byte, a record and what the public client reads"},
    {"8", "short bodies taken as the end, error pages as content", "fault: `short`: shorter length and body"},
    {"9", "no length from gzip or mirrors", "a fresh get brings every byte, a record and what the public client reads"},
    {"10, 11", "over 50 GB refused without a Range",
     "a fresh get brings every byte, a record and what the public client reads"},
    {"13", "hangs for hours without an error", "fault: `global_stall`: silence on all connections"},
    {"14", "repeated 403 on signed URLs", "fault: `reject_sig`"},
    {"15", "expired URL kept, partial deleted", "fault: `expire`: URLs that live one second"},
    {"17, 26", "double disk use, long temporary names", "names as long as the file system allows"},
    {"18", "429 on many files", "fault: `rate` 429 with RateLimit t="},
    {"18, 51", "unusable while the Hub is limited or down",
     "offline succeeds with everything there and ends with 9 otherwise"},
    {"19", "no proxy support", "a proxy is used for other hosts, and its password is not said"},
    {"20, 42, 49", "a web page or LFS pointer stored as weights", "fault: `html`: a captive portal's page"},
    {"21", "mirror whose metadata is missing", "fault: `missing_header`: no X-Repo-Commit"},
    {"22", "same host on another port is not the same origin", "another port of the same host is another origin"},
    {"23", "token forwarded or dropped wrongly", "the token goes to the Hub and to nobody else"},
    {"24", "names that write outside the folder",
     "names that would leave the folder are refused before anything is written"},
    {"25", "names that other systems cannot hold",
     "names that differ only in case, and names that other systems cannot hold"},
    {"27", "locked for ever", "a second process is told who works in the folder, and waits when asked to"},
    {"28, 33", "stuck when the disk is full",
     "a disk that is full before the start and in the middle, then has room again"},
    {"29", "a mount that corrupts parallel writes", "files can be read back from the device, and chosen by role"},
    {"30", "hash failed, exit 0", "a flipped byte heals once, and for ever is a digest error without a final file"},
    {"31", "digest read from the wrong member",
     "a fresh get brings every byte, a record and what the public client reads"},
    {"32", "parts truncated at a retry", "transient faults are survived without a byte wrong or twice"},
    {"35", "control file ahead of the data",
     "a part whose bytes changed under the journal is fetched again where it is wrong"},
    {"36, 43", "a final name before the end",
     "a process killed at any moment leaves nothing wrong, and the next one fetches one piece a connection again"},
    {"38", "storage that limits the length of a range", "fault: `range_limit`: 403 for ranges over 100 kB"},
    {"41", "a resume onto a file of an older revision",
     "other content under a wanted name stops the run, or is put aside"},
    {"44", "one shard after the other", "a fresh get brings every byte, a record and what the public client reads"},
    {"46, 47", "an index that names what is not there", "what is not there, and what no regex is"},
    {"48, 55", "a tensor outside its file", "a header longer than the first read, and one over the limit"},
    {"52", "page cache counts as used memory",
     "finished files and the hashed part of a running one are not left in the page cache"},
};

std::string page_of_bugs(const std::string& faults) {
  std::string sources;
  const auto names = io::list_files(DSF_SOURCE_DIR "/tests/unit/fetch");
  REQUIRE(names);
  for (const std::string& name : *names) {
    if (name.ends_with("_test.cpp") && name != "faults_test.cpp")
      sources += *io::read_text(std::filesystem::path(DSF_SOURCE_DIR "/tests/unit/fetch") / name);
  }
  std::string out = "| rows of hub.md 8 | reported elsewhere | met by |\n| --- | --- | --- |\n";
  for (const Bug& b : kBugs) {
    const std::string where = b.where;
    const bool is_fault = where.starts_with("fault: ");
    // The page names no test that does not exist.
    CHECK_MESSAGE((is_fault ? faults.find("| " + where.substr(7) + " |") : sources.find("\"" + where + "\"")) !=
                      std::string::npos,
                  where);
    out +=
        std::string("| ") + b.rows + " | " + b.symptom + " | " + (is_fault ? where : "test \"" + where + "\"") + " |\n";
  }
  return out;
}

}  // namespace

TEST_CASE("every fault has the outcome that docs/faults.md says") {
  const std::string faults = page_of_faults();
  const std::string page =
      "# Faults of a download, and what becomes of them\n\n"
      "This page is written by the unit test `fetch` (tests/unit/fetch/faults_test.cpp), from what a run against the "
      "loopback Hub ended with. Do not\n"
      "edit it: run the test with `DSF_UPDATE_DOCS=1`. In every row it is also checked that no final name holds a "
      "wrong byte.\n\n"
      "## Faults\n\n"
      "A cell holds the exit code, and the class that `--json` gives. The fault is met by the storage host unless its "
      "name says otherwise; retries are\n"
      "four here, ten by default.\n\n" +
      faults +
      "\nNot met: `h2_goaway` (data and API calls speak HTTP/1.1).\n\n"
      "## Reported problems of other clients\n\n"
      "Rows 5, 12, 16, 34, 37, 45, 50 and 53 of the specification's list are about shared caches, messages, "
      "measurements, layouts and verification, which a\n"
      "download does not meet as a fault.\n\n" +
      page_of_bugs(faults);
  const std::filesystem::path path = DSF_SOURCE_DIR "/docs/faults.md";
  const auto committed = io::read_text(path);
  if (std::getenv("DSF_UPDATE_DOCS") != nullptr &&
      (!committed || *committed != page)) {  // NOLINT(concurrency-mt-unsafe)
    REQUIRE(io::write_file_atomic(path, page));
    return;
  }
  CHECK_MESSAGE((committed && *committed == page), "run this test with DSF_UPDATE_DOCS=1 and look at the difference");
}
