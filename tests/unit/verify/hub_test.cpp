// Level hub and repair against a Hub on loopback.
#include "dsf/loopback_hub/loopback_hub.h"
#include "folder.h"
#include "tools/verify/remote.h"
#include "tools/verify/repair.h"

using namespace dsf;
using namespace dsf::test;

namespace {

std::string noise(size_t n, uint32_t seed) {
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<char>(seed >> 24));
  }
  return out;
}

loopback_hub::Fault fault(const std::string& host, const std::string& action, int64_t n, int64_t times = -1) {
  loopback_hub::Fault f;
  f.host = host;
  f.action = action;
  f.n = n;
  f.times = times;
  return f;
}

// A repository, a folder that holds it, and its pin; a large file has a list of pieces.
struct Fetched {
  static constexpr uint64_t kPiece = 4096;
  TempDir hub_root, dir, beside;
  std::unique_ptr<loopback_hub::LoopbackHub> hub;
  std::filesystem::path pin_path = beside / "pin.json";
  std::string big = noise(40'000, 1);

  Fetched() {
    for (const auto& root : {hub_root / "org" / "repo", dir.path()}) {
      std::filesystem::create_directories(root);
      REQUIRE(io::write_file_atomic(root / "config.json", "{\"a\": 1}\n"));
      REQUIRE(io::write_file_atomic(root / "big.bin", big));
      REQUIRE(io::write_file_atomic(root / "plain.bin", noise(9'000, 2)));
    }
    loopback_hub::Options options;
    options.root = hub_root.path();
    auto started = loopback_hub::LoopbackHub::start(options);
    REQUIRE(started);
    hub = std::move(*started);
    write_pin_with_pieces();
  }

  void write_pin_with_pieces() const {
    manifest::Pin pin = pin_of(dir.path(), "org/repo");
    pin.source.revision = *hub->commit_of("org/repo");
    for (manifest::PinFile& f : pin.files) {
      if (f.path != "big.bin") continue;
      std::string raw;
      for (size_t at = 0; at < big.size(); at += kPiece) raw += as_text(codec::sha256(big.substr(at, kPiece)).bytes);
      f.pieces = manifest::PieceDigests{kPiece, codec::sha256(raw).hex()};
      std::filesystem::create_directories(beside / "pin.pieces");
      REQUIRE(io::write_file_atomic(beside / "pin.pieces" / (f.sha256 + ".bin"), raw));
    }
    test::write_pin(pin, pin_path);
  }

  std::shared_ptr<hub::Shared> shared() const {
    hub::Settings s;
    s.endpoint = hub->endpoint();
    s.stall_timeout_us = 500'000;
    return std::make_shared<hub::Shared>(s, hub::RetryPolicy{.attempts = 3, .base_us = 1000, .cap_us = 5000});
  }
  verify::RawOptions options() const {
    verify::RawOptions raw;
    raw.dir = dir.path();
    raw.common.pin = pin_path;
    raw.common.jobs = 2;
    return raw;
  }
  Ran repaired() const {
    const auto plan = verify::make_plan(options());
    REQUIRE(plan);
    return run_plan(plan, [&](const verify::Plan& p, std::ostream& out, std::ostream& err) {
      return verify::repair(p, {.connections = 2, .request_bytes = 8192}, shared(), out, err);
    });
  }
  std::vector<std::pair<std::string, verify::Finding>> compared() const {
    const auto plan = verify::make_plan(options());
    const auto evidence = verify::load_evidence(*plan);
    REQUIRE(evidence);
    const auto findings = verify::compare_with_hub(*plan, *evidence, shared());
    REQUIRE_MESSAGE(findings, findings.error().line());
    return *findings;
  }
  std::vector<std::string> leftovers() const {
    std::vector<std::string> out = *io::list_files(dir.path());
    std::erase_if(out, [](const std::string& f) { return !f.starts_with(".cache/verify/repair"); });
    return out;
  }
};

}  // namespace

TEST_CASE("a folder that is right has nothing to repair, and agrees with the Hub") {
  const Fetched f;
  const Ran ran = f.repaired();
  CHECK_MESSAGE(ran.code == 0, ran.err);
  CHECK(ran.prints("nothing to repair"));
  CHECK(f.compared().empty());
}

TEST_CASE("with a list of pieces only the damaged ones are fetched again") {
  const Fetched f;
  flip(f.dir / "big.bin", 5000);
  flip(f.dir / "big.bin", 39'999);
  verify::RawOptions raw = f.options();
  raw.common.json = true;
  const Ran found = run_verify(raw);
  CHECK(found.code == 1);
  CHECK(found.says("2 of its pieces differ, the first at byte 4096"));
  CHECK(found.prints("\"offset\": 36864"));
  f.hub->clear_log();
  const Ran ran = f.repaired();
  CHECK_MESSAGE(ran.code == 0, ran.err);
  CHECK(ran.prints("repaired 1 files, fetched 7.1 KiB"));  // 4096 and the last 3136 bytes
  CHECK(*io::read_text(f.dir / "big.bin") == f.big);
  CHECK(f.leftovers().empty());
  uint64_t sent = 0;
  for (const auto& e : f.hub->log())
    if (!e.range.empty()) sent += e.bytes;
  CHECK(sent == 4096 + 3136);
}

TEST_CASE("without pieces the whole file is fetched, as are missing and cut ones") {
  const Fetched f;
  flip(f.dir / "plain.bin", 77);
  std::filesystem::remove(f.dir / "config.json");
  cut(f.dir / "big.bin", 20'000);
  const Ran ran = f.repaired();
  CHECK_MESSAGE(ran.code == 0, ran.err);
  CHECK(ran.prints("repaired 3 files"));
  CHECK(*io::read_text(f.dir / "big.bin") == f.big);
  CHECK(*io::read_text(f.dir / "config.json") == "{\"a\": 1}\n");
}

TEST_CASE(
    "dropped connections and server errors are tried again; what does not arrive leaves the damaged file in place") {
  const Fetched f;
  flip(f.dir / "plain.bin", 77);
  const std::string damaged = *io::read_text(f.dir / "plain.bin");
  f.hub->add_fault(fault("cdn", "drop_after", 1000, 2));
  CHECK(f.repaired().code == 0);
  flip(f.dir / "plain.bin", 77);
  f.hub->add_fault(fault("", "status", 503));
  const Ran ran = f.repaired();
  CHECK(ran.code == 3);
  CHECK(*io::read_text(f.dir / "plain.bin") == damaged);
  CHECK(f.leftovers().empty());
}

TEST_CASE("bytes that are still wrong after fetching are refused and named, never put in place") {
  const Fetched f;
  flip(f.dir / "plain.bin", 77);
  const std::string damaged = *io::read_text(f.dir / "plain.bin");
  f.hub->add_fault(fault("cdn", "flip", 10));
  const Ran ran = f.repaired();
  CHECK(ran.code == 8);
  CHECK(*io::read_text(f.dir / "plain.bin") == damaged);
}

TEST_CASE("a Hub that has other content than the pin is an error of that file, at level hub alone") {
  const Fetched f;
  REQUIRE(io::write_file_atomic(f.hub_root / "org" / "repo" / "extra.txt", "new\n"));
  REQUIRE(io::write_file_atomic(f.hub_root / "org" / "repo" / "big.bin", noise(40'000, 9)));
  std::filesystem::remove(f.hub_root / "org" / "repo" / "plain.bin");
  f.hub->reload();
  f.write_pin_with_pieces();  // at the new commit
  std::map<std::string, std::string> codes;
  for (const auto& [path, finding] : f.compared()) codes[path] = finding.code;
  CHECK(codes == std::map<std::string, std::string>{{"big.bin", "HB01"}, {"extra.txt", "HB03"}, {"plain.bin", "HB02"}});
  CHECK(run_verify(f.options()).code == 0);
}

TEST_CASE("without a word about the repository there is nothing to ask") {
  const Folder folder;
  verify::RawOptions raw = verifying(folder);
  const auto plan = verify::make_plan(raw);
  const auto evidence = verify::load_evidence(*plan);
  const Fetched f;
  CHECK(verify::compare_with_hub(*plan, *evidence, f.shared()).error().code == Code::kUsage);
}
