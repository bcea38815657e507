#include "dsf/io/file.h"

#include <array>
#include <doctest/doctest.h>
#include <fstream>

#include "dsf/base/numeric.h"
#include "dsf/test/support.h"

using namespace dsf;

TEST_CASE("an atomic file appears whole or not at all") {
  const test::TempDir dir;
  {
    auto f = io::AtomicFile::create(dir / "a");
    REQUIRE(f);
    REQUIRE(f->write(as_bytes("half")));
    CHECK_FALSE(std::filesystem::exists(dir / "a"));
  }
  CHECK(std::filesystem::is_empty(dir.path()));
  REQUIRE(io::write_file_atomic(dir / "a", "one"));
  REQUIRE(io::write_file_atomic(dir / "a", "two"));
  CHECK(io::read_text(dir / "a").value() == "two");
  CHECK(io::list_files(dir.path()).value() == std::vector<std::string>{"a"});
}

TEST_CASE("a missing file is code 5, a folder in its place too, an unwritable place 6") {
  const test::TempDir dir;
  CHECK(io::open_read(dir / "none").error().code == Code::kMissing);
  CHECK(io::open_read(dir.path()).error().code == Code::kMissing);
  CHECK(io::Mmap::open(dir / "none").error().code == Code::kMissing);
  CHECK(io::write_file_atomic("/proc/nothing/here", "x").error().code == Code::kMissing);
  CHECK(io::make_dirs("/proc/x/y").error().code != Code::kOk);
}

TEST_CASE("reading past the end says how much is missing") {
  const test::TempDir dir;
  REQUIRE(io::write_file_atomic(dir / "a", "0123456789"));
  const auto fd = io::open_read(dir / "a");
  REQUIRE(fd);
  std::array<std::byte, 4> four{};
  REQUIRE(io::read_at(*fd, 6, four));
  CHECK(as_text(four) == "6789");
  const auto past = io::read_at(*fd, 8, four);
  REQUIRE_FALSE(past);
  CHECK(past.error().code == Code::kContent);
  CHECK(past.error().what == "ends at byte 10, 2 bytes short");
  CHECK(io::read_text(dir / "a", 9).error().code == Code::kContent);
}

TEST_CASE("a mapping shows the file's bytes; an empty file maps to nothing") {
  const test::TempDir dir;
  REQUIRE(io::write_file_atomic(dir / "a", "hello"));
  REQUIRE(io::write_file_atomic(dir / "e", ""));
  const auto map = io::Mmap::open(dir / "a");
  REQUIRE(map);
  CHECK(as_text(map->bytes()) == "hello");
  CHECK(io::Mmap::open(dir / "e")->bytes().empty());
}

TEST_CASE("a second holder of a lock is told so") {
  const test::TempDir dir;
  const auto first = io::FileLock::acquire(dir / "lock");
  REQUIRE(first);
  const auto second = io::FileLock::acquire(dir / "lock");
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Code::kBusy);
}
