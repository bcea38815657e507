#include "tools/fetch/owner.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using fetch::Owner;

TEST_CASE("one owner has the parts, and a second living one gets a folder of its own") {
  const test::TempDir dir;
  {
    const auto first = Owner::claim(dir.path());
    REQUIRE(first);
    CHECK(first->exclusive());
    CHECK(first->parts() == "parts");
    CHECK(fetch::owner_of(dir.path()) == fetch::owner_text());
    const auto second = Owner::claim(dir.path());
    REQUIRE(second);
    CHECK_FALSE(second->exclusive());
    CHECK(second->parts().starts_with("parts-"));
  }
  CHECK(fetch::owner_of(dir.path()).empty());
}

TEST_CASE("the claim of a dead process is taken over at once, that of another host after a minute") {
  const test::TempDir dir;
  const std::string me = fetch::owner_text();
  std::string dead = me;
  dead.replace(dead.rfind(' ') + 1, std::string::npos, "1");  // the same number, but another start: the pid was reused
  CHECK_FALSE(fetch::owner_alive(dead, 0));
  REQUIRE(io::write_file_atomic(dir / "OWNER", dead));
  const auto owner = Owner::claim(dir.path());
  REQUIRE(owner);
  CHECK(owner->exclusive());
  CHECK(fetch::owner_alive("elsewhere.example 12 boot 34", 10));
  CHECK_FALSE(fetch::owner_alive("elsewhere.example 12 boot 34", 61));
  CHECK_FALSE(fetch::owner_alive("", 61));
}
