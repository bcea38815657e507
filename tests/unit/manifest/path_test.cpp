#include "dsf/manifest/path.h"

#include <doctest/doctest.h>

using namespace dsf::manifest;

TEST_CASE("paths that leave the folder or confuse a terminal are refused") {
  using namespace std::string_literals;
  for (const std::string& bad : {""s,
                                 "/etc/passwd"s,
                                 "../x"s,
                                 "a/../b"s,
                                 "a/./b"s,
                                 "a//b"s,
                                 "a/"s,
                                 "C:\\x"s,
                                 "c:/x"s,
                                 "\\\\h\\s"s,
                                 "a\\b"s,
                                 "a\0b"s,
                                 "a\nb"s,
                                 "a\x7f"s,
                                 "\xff"s,
                                 "\xc0\xaf"s,
                                 "\xed\xa0\x80"s,
                                 ".git/config"s,
                                 ".GIT/hooks/x"s,
                                 ".cache/x"s,
                                 std::string(256, 'a'),
                                 std::string(5000, 'a')}) {
    CHECK_MESSAGE(!path_problem(bad).empty(), printable(bad));
  }
  for (const std::string& good : {"config.json"s, "sub/d ir/\xC3\xA9#%.txt"s, ".gitattributes"s, "a/.git"s, "a/..b"s,
                                  "..."s, std::string(255, 'a')}) {
    CHECK_MESSAGE(path_problem(good).empty(), good);
  }
}

TEST_CASE("names that other systems forbid are told apart") {
  for (const char* bad : {"a:b", "CON", "con.txt", "x/COM1", "lpt9.x", "a.", "a ", "a./b", "q?"})
    CHECK_MESSAGE(!portability_problem(bad).empty(), bad);
  for (const char* good : {"a", "console", "com0", "a.b/c d"}) CHECK_MESSAGE(portability_problem(good).empty(), good);
}

TEST_CASE("a file that is also a folder is fatal, a case difference is not") {
  const auto conflicts = path_conflicts({"a/b", "a", "x/Y", "x/y", "ab"});
  REQUIRE(conflicts.size() == 2);
  CHECK(conflicts[0].fatal);
  CHECK(conflicts[0].a == "a");
  CHECK(conflicts[0].b == "a/b");
  CHECK_FALSE(conflicts[1].fatal);
  CHECK(path_conflicts({"a", "a"}).at(0).fatal);
  CHECK(path_conflicts({"a/b/c", "a/b", "a/bc"}).size() == 1);
}

TEST_CASE("globs behave as the Python client's do") {
  CHECK(glob_match("*.json", "sub/x.json"));
  CHECK(glob_match("*", "a/b/c"));
  CHECK(glob_match("sub/", "sub/a/b"));
  CHECK_FALSE(glob_match("sub/", "sub"));
  CHECK(glob_match("a?c", "a/c"));
  CHECK(glob_match("model-0000[12]-*", "model-00002-of-00043.safetensors"));
  CHECK_FALSE(glob_match("model-0000[!12]*", "model-00002-of"));
  CHECK(glob_match("[]x]", "]"));
  CHECK(glob_match("[a-c]", "b"));
  CHECK(glob_match("[", "["));
  CHECK(glob_match("a[b", "a[b"));
  CHECK_FALSE(glob_match("*.JSON", "x.json"));
  CHECK(glob_match("**x*", "aaxbb"));
  CHECK_FALSE(glob_match("", "a"));
  CHECK(glob_match("", ""));
  CHECK_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));  // ends soon
}

TEST_CASE("a filter takes what is included and not excluded") {
  const Filter f{{"*.json", "model-*"}, {"model-00002*"}};
  CHECK(f.takes("config.json"));
  CHECK(f.takes("model-00001"));
  CHECK_FALSE(f.takes("model-00002"));
  CHECK_FALSE(f.takes("README.md"));
  CHECK(Filter{}.takes("anything"));
}

TEST_CASE("printable names carry no control and no direction changes") {
  CHECK(printable("a\x1b[31m\n\xE2\x80\xAE"
                  "b\xC3\xA9\xff") == "a?[31m??b\xC3\xA9?");
}
