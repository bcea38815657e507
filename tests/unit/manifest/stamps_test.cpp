#include "dsf/manifest/stamps.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::manifest;

namespace {
constexpr int64_t kHour = 3600 * 1000;

Stamp stamp_of(const std::filesystem::path& file, int64_t verified_ms) {
  Stamp s;
  s.path = file.filename().string();
  s.state = *file_state(file);
  s.sha256 = std::string(64, 'a');
  s.verified_ms = verified_ms;
  s.tool = "dsf-verify/test";
  return s;
}
}  // namespace

TEST_CASE("a stamp holds while the file has not changed, and only when it was quiet before the verification") {
  Stamp s;
  s.state = {.dev = 1, .inode = 2, .size = 3, .mtime_ns = 10'000'000'000, .ctime_ns = 11'000'000'000};
  s.verified_ms = 20'000;
  CHECK(holds(s, s.state, 21'000, false));
  for (uint64_t FileState::*field : {&FileState::dev, &FileState::inode, &FileState::size}) {
    FileState other = s.state;
    other.*field += 1;
    CHECK(!holds(s, other, 21'000, false));
  }
  FileState touched = s.state;
  touched.ctime_ns += 1;  // mtime was set back, ctime cannot be
  CHECK(!holds(s, touched, 21'000, false));
  s.verified_ms = 12'500;  // written 1.5 seconds before: a later write in the same tick would look the same
  CHECK(!holds(s, s.state, 21'000, false));
}

TEST_CASE("on a network file system a stamp ends after a day") {
  Stamp s;
  s.verified_ms = 100 * kHour;
  CHECK(holds(s, s.state, 101 * kHour, true));
  CHECK(!holds(s, s.state, 125 * kHour, true));
  CHECK(holds(s, s.state, 125 * kHour, false));
}

TEST_CASE("stamps are written and read back; an absent file is an empty set, a malformed one an error") {
  test::TempDir dir;
  CHECK(load_stamps(dir.path())->empty());
  REQUIRE(io::write_file_atomic(dir / "a.bin", "abc"));
  const Stamp s = stamp_of(dir / "a.bin", 7);
  REQUIRE(write_stamps(dir.path(), {{"a.bin", s}}));
  const auto back = load_stamps(dir.path());
  REQUIRE(back);
  REQUIRE(back->size() == 1);
  CHECK(back->at("a.bin").state == s.state);
  CHECK(back->at("a.bin").sha256 == s.sha256);
  REQUIRE(io::write_file_atomic(dir / std::string(kStampsPath), "{}"));
  CHECK(load_stamps(dir.path()).error().code == Code::kContent);
}

TEST_CASE("files that neither a stamp nor the fetch record speaks for are unproven") {
  test::TempDir dir;
  for (const char* name : {"a", "b", "c"}) REQUIRE(io::write_file_atomic(dir / name, name));
  CHECK(unproven_files(dir.path(), {"a", "b", "absent"}) == std::vector<std::string>{"a", "b", "absent"});
  const int64_t later = file_state(dir / "a")->mtime_ns / 1'000'000 + 10'000;
  REQUIRE(write_stamps(dir.path(), {{"a", stamp_of(dir / "a", later)}}));
  const FileState b = *file_state(dir / "b");
  FetchRecord record;
  record.created_by = "dsf-fetch/test";
  record.repo = "a/b";
  record.revision = std::string(40, 'a');
  FetchedFile f;
  f.path = "b";
  f.size = b.size;
  f.sha256 = std::string(64, 'b');
  f.mtime_ns = b.mtime_ns;
  f.inode = b.inode;
  f.dev = b.dev;
  record.files.push_back(f);
  REQUIRE(io::make_dirs((dir / std::string(kFetchRecordPath)).parent_path()));
  REQUIRE(io::write_file_atomic(dir / std::string(kFetchRecordPath), write(to_record(record))));
  CHECK(unproven_files(dir.path(), {"a", "b", "c"}) == std::vector<std::string>{"c"});
  REQUIRE(io::write_file_atomic(dir / "b", "x"));  // same size, another inode and time
  CHECK(unproven_files(dir.path(), {"a", "b"}) == std::vector<std::string>{"b"});
}
