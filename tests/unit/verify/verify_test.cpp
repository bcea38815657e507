#include <functional>

#include "dsf/json/json.h"
#include "folder.h"

using namespace dsf;
using namespace dsf::test;

TEST_CASE("a folder that is right passes at every level, and says against what") {
  const Folder f;
  for (const char* level : {"stat", "quick", "full"}) {
    verify::RawOptions raw = against_pin(f);
    raw.level = level;
    const Ran ran = run_verify(raw);
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(ran.err == "");
    CHECK(ran.out.starts_with("OK 4 files"));
    CHECK(ran.out.find("against pin") != std::string::npos);
  }
}

TEST_CASE("damage against a pin: one line, code 1, and what it is") {
  const auto broken = [](const std::function<void(const Folder&)>& damage, const std::string& words) {
    const Folder f;
    verify::RawOptions raw = against_pin(f);
    damage(f);
    const Ran ran = run_verify(raw);
    INFO(words, ": ", ran.err);
    CHECK(ran.code == 1);
    CHECK(ran.lines() == 1);
    CHECK(ran.says(words));
    CHECK(ran.out.find("FAILED 1 of") != std::string::npos);
  };
  broken([](const Folder& f) { flip(f.dir / kShard1, *io::file_size(f.dir / kShard1) - 1); }, "sha256 differs");
  broken([](const Folder& f) { flip(f.dir / "config.json", 0); }, "sha256 differs");
  broken([](const Folder& f) { std::filesystem::resize_file(f.dir / kShard2, *io::file_size(f.dir / kShard2) - 1); },
         "bytes, ");
  broken([](const Folder& f) { std::filesystem::remove(f.dir / kShard2); }, "is missing; fetch it");
  broken(
      [](const Folder& f) {
        std::filesystem::rename(f.dir / kShard2, f.beside / "elsewhere");
        std::filesystem::create_symlink(f.beside / "elsewhere", f.dir / kShard2);
      },
      "is not a regular file");
}

TEST_CASE("level stat sees sizes only, quick sees structure and small files") {
  const Folder f;
  verify::RawOptions raw = against_pin(f);
  flip(f.dir / "config.json", 0);
  raw.level = "stat";
  const Ran stat = run_verify(raw);
  CHECK(stat.code == 0);
  CHECK(stat.out.find("not checked: digests") != std::string::npos);
  raw.level = "quick";
  CHECK(run_verify(raw).code == 1);
}

TEST_CASE("a link inside a cache layout is accepted") {
  const Folder f;
  verify::RawOptions raw = against_pin(f);
  std::filesystem::create_directory(f.dir / "blobs");
  std::filesystem::rename(f.dir / kShard2, f.dir / "blobs" / "0123");
  std::filesystem::create_symlink("blobs/0123", f.dir / kShard2);
  CHECK(run_verify(raw).code == 0);
}

TEST_CASE("extra files are warnings with a complete pin, errors on request, nothing with a partial one") {
  const Folder f;
  verify::RawOptions raw = against_pin(f);
  manifest::Pin partial = pin_of(f.dir.path());
  partial.complete = false;
  REQUIRE(io::write_file_atomic(f.dir / "notes.txt", "x"));
  std::filesystem::create_directories(f.dir / ".cache" / "fetch");
  REQUIRE(io::write_file_atomic(f.dir / ".cache" / "fetch" / "x", "bookkeeping"));
  CHECK(run_verify(raw).code == 0);
  CHECK(run_verify(raw).says("notes.txt: warning"));
  raw.no_extra = true;
  CHECK(run_verify(raw).code == 1);
  raw.no_extra = false;
  raw.common.pin = write_pin(partial, f.beside / "partial.json");
  CHECK(run_verify(raw).err == "");
}

TEST_CASE("without a pin SHA256SUMS counts, and it can be written") {
  const Folder f;
  verify::RawOptions raw = verifying(f);
  raw.write_sums = f.dir / "SHA256SUMS";
  REQUIRE(run_verify(raw).code == 0);
  raw.write_sums.clear();
  const Ran ok = run_verify(raw);
  CHECK(ok.code == 0);
  CHECK(ok.out.find("against SHA256SUMS") != std::string::npos);
  flip(f.dir / kShard1, *io::file_size(f.dir / kShard1) - 1);
  CHECK(run_verify(raw).code == 1);
}

TEST_CASE("a fetch record is the last evidence, named as such") {
  const Folder f;
  manifest::FetchRecord record;
  record.repo = "org/folder";
  record.revision = std::string(40, 'a');
  for (const char* name : {kShard1, kShard2}) {
    manifest::FetchedFile file;
    file.path = name;
    file.size = *io::file_size(f.dir / name);
    file.sha256 = codec::sha256_file(f.dir / name)->hex();
    file.verified = "received";
    record.files.push_back(file);
  }
  std::filesystem::create_directories(f.dir / ".cache/fetch");
  REQUIRE(io::write_file_atomic(f.dir / manifest::kFetchRecordPath, manifest::write(manifest::to_record(record))));
  const Ran ok = run_verify(verifying(f));
  CHECK_MESSAGE(ok.code == 0, ok.err);
  CHECK(ok.out.find("against fetch record") != std::string::npos);
  flip(f.dir / kShard2, *io::file_size(f.dir / kShard2) - 1);
  CHECK(run_verify(verifying(f)).says("sha256 differs"));
}

TEST_CASE("the report is a record with digests, verdict and what was not checked") {
  const Folder f;
  verify::RawOptions raw = against_pin(f);
  raw.report = f.beside / "verify.json";
  raw.common.json = true;
  flip(f.dir / kShard1, *io::file_size(f.dir / kShard1) - 1);
  const Ran ran = run_verify(raw);
  CHECK(ran.code == 1);
  const auto root = json::parse(*io::read_text(raw.report), "report");
  REQUIRE(root);
  CHECK(*io::read_text(raw.report) == ran.out);
  const json::Cursor c(*root, "report");
  CHECK(*c.string_at("schema") == "hub-verify");
  CHECK(*c.string_at("result") == "failed");
  CHECK(c.string_at("pin_sha256")->size() == 64);
  CHECK(root->find("totals")->find("mismatch")->to_u64() == 1);
  const json::Value* bad = nullptr;
  for (const json::Value& item : root->find("items")->as_array())
    if (item.find("path")->as_string() == kShard1) bad = &item;
  REQUIRE(bad != nullptr);
  CHECK(bad->find("status")->as_string() == "mismatch");
  CHECK(bad->find("actual")->find("sha256")->as_string() != bad->find("expected")->find("sha256")->as_string());
}

TEST_CASE("commands that cannot be carried out name the code of their class") {
  const Folder f;
  verify::RawOptions raw = verifying(f);
  raw.dir = f.dir / "absent";
  CHECK(run_verify(raw).code == 5);
  raw = verifying(f);
  raw.common.pin = f.beside / "absent.json";
  CHECK(run_verify(raw).code == 5);
  REQUIRE(io::write_file_atomic(f.beside / "bad.json", "{\"schema\": \"hub-pin\", \"version\": 9}"));
  raw.common.pin = f.beside / "bad.json";
  CHECK(run_verify(raw).code == 8);
  raw = verifying(f);
  raw.common.pin = "a";
  raw.sums = "b";
  CHECK(run_verify(raw).code == 2);
  TempDir empty;
  raw = verifying(f);
  raw.dir = empty.path();
  CHECK(run_verify(raw).code == 5);
}

TEST_CASE("an open pin is refused unless told otherwise, and then says what stays open") {
  const Folder f;
  auto pin = manifest::load_pin(f.write_pin());
  REQUIRE(pin);
  pin->files[1].sha256.clear();
  REQUIRE(io::write_file_atomic(f.beside / "open.json", manifest::write(*pin)));
  verify::RawOptions raw = verifying(f);
  raw.common.pin = f.beside / "open.json";
  CHECK(run_verify(raw).code == 2);
  raw.allow_open = true;
  const Ran ran = run_verify(raw);
  CHECK_MESSAGE(ran.code == 0, ran.err);
  CHECK(ran.out.find("not checked: 1 files whose size or digest") != std::string::npos);
}
