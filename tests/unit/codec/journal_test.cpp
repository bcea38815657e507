#include "dsf/codec/journal.h"

#include <doctest/doctest.h>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using codec::Journal;

namespace {
std::string text_of(const std::filesystem::path& path) { return *io::read_text(path); }
}  // namespace

TEST_CASE("claims survive, and a torn or damaged line ends the journal") {
  test::TempDir dir;
  const auto path = dir / "j";
  const std::string digest = codec::sha256("x").hex();
  {
    auto j = Journal::open(path, "{\"a\":1}");
    REQUIRE(j);
    for (uint64_t i = 0; i < 3; ++i) REQUIRE(j->add(i, digest));
  }
  CHECK(Journal::open(path, "{\"a\":1}")->claims().size() == 3);
  const std::string whole = text_of(path);
  REQUIRE(io::write_file_atomic(path, whole.substr(0, whole.size() - 5)));
  {
    auto j = Journal::open(path, "{\"a\":1}");
    CHECK(j->claims().size() == 2);
    REQUIRE(j->add(7, digest));  // behind the cut, not behind the torn bytes
  }
  CHECK(Journal::open(path, "{\"a\":1}")->claims().contains(7));
  std::string flipped = whole;
  flipped[whole.find("P 1") + 5] ^= 1;
  REQUIRE(io::write_file_atomic(path, flipped));
  CHECK(Journal::open(path, "{\"a\":1}")->claims().size() == 1);
}

TEST_CASE("a journal of another content starts anew") {
  test::TempDir dir;
  const auto path = dir / "j";
  REQUIRE(Journal::open(path, "{\"a\":1}")->add(0, "12ab34cd"));
  CHECK(Journal::open(path, "{\"a\":2}")->claims().empty());
  CHECK(Journal::open(path, "{\"a\":1}")->claims().empty());
}
