#include "dsf/engram/token_map.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::test;
using engram::normalize;
using engram::TokenMap;

TEST_CASE("case, accents, widths and ligatures fold") {
  for (const char* s : {" The", "the", "THE", "thÉ", "ｔｈｅ"}) CHECK(normalize(s) == "the");
  CHECK(normalize("É") == "e");
  CHECK(normalize("Ａ") == "a");
  CHECK(normalize("ﬁ") == "fi");
  CHECK(normalize("²") == "2");
  CHECK(normalize("Σς") == "σς");  // no final-sigma rule
  CHECK(normalize("İ") == "i");
  CHECK(normalize("<｜User｜>") == "<|user|>");
  CHECK(normalize("▁") == "▁");
  CHECK(normalize("你好") == "你好");
}

TEST_CASE("blanks share one key, other white space is stripped") {
  for (const char* s : {" ", "\n", "\t", "  ", "\r\n", "\xC2\xA0", "\xE3\x80\x80"}) CHECK(normalize(s) == " ");
  CHECK(normalize("\n\n x") == "x");
  CHECK(normalize("a  b") == "a b");
  CHECK(normalize("\v") == "");
  CHECK(normalize("\xE2\x80\xA8y\xE2\x80\xA9") == "y");
  CHECK(normalize("\xEE\x80\x80") == " ");  // a literal U+E000
}

TEST_CASE("marks of all three kinds are dropped") {
  CHECK(normalize("a\xCC\x81") == "a");              // Mn U+0301
  CHECK(normalize("\xE0\xA4\x95\xE0\xA4\xBE") == "\xE0\xA4\x95");  // Mc U+093E
  CHECK(normalize("a\xE2\x83\x9D") == "a");          // Me U+20DD
  CHECK(normalize("\xCC\x81") == "");
}

TEST_CASE("bytes that are not UTF-8 and embedded NUL are no crash") {
  CHECK(normalize("\xFF") == "\xEF\xBF\xBD");
  CHECK(normalize(std::string_view("a\0B", 3)) == std::string_view("a\0b", 3));
}

TEST_CASE("ids are numbered by first appearance and raw spellings share the dictionary") {
  const std::vector<engram::TokenSpelling> tokens{
      {"The", "The"}, {"Ġthe", " the"}, {"x", "x"}, {"æ", "\xEF\xBF\xBD"}, {"Ã¦", "æ"}, {"", ""}, {"", ""}, {"Ċ", "\n"}, {"Ġ", " "}, {"ĉ", "\v"}};
  const TokenMap map = TokenMap::build(10, [&](int64_t id) { return tokens[static_cast<size_t>(id)]; });
  CHECK(map.ids() == std::vector<int32_t>{0, 0, 1, 2, 2, 3, 4, 5, 5, 6});
  CHECK(map.compressed_size() == 7);
  CHECK(map.at(-1) == TokenMap::kDead);
  CHECK(map.at(10) == TokenMap::kDead);
}

TEST_CASE("the real map loads with its published sizes, digest and structure") {
  if (shared_data().empty()) return skip("real token map", "shared data not present");
  const auto map = TokenMap::load(shared_data() / "engram_token_map.json");
  REQUIRE(map);
  CHECK(map->expect(129280, 99092, "map"));
  CHECK(map->digest() == "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
  CHECK(map->at(2) == 2);
  CHECK(map->at(128803) == 98615);
  for (int k = 0; k < 26; ++k) CHECK(map->at(67 + k) == map->at(35 + k));
  for (int64_t id = 127990; id < 129280; ++id) CHECK(map->at(id) == id - 30188);
}

TEST_CASE("a map file that is not numbered by first appearance is refused") {
  TempDir dir;
  for (const char* text : {"[0, 2]", "[1]", "[0, -1]", "[0, 4294967296]", "[0, 1.5]", "{}", "[0", ""}) {
    REQUIRE(io::write_file_atomic(dir / "m.json", text));
    const auto map = TokenMap::load(dir / "m.json");
    INFO(text);
    REQUIRE(!map);
    CHECK(map.error().code == Code::kContent);
  }
  CHECK(TokenMap::load(dir / "absent.json").error().code == Code::kMissing);
}
