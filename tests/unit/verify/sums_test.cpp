#include "tools/verify/sums.h"

#include <doctest/doctest.h>

using namespace dsf;
using namespace dsf::verify;

TEST_CASE("text, binary and BSD lines are read; writing gives what sha256sum -c takes") {
  const std::string a(64, 'a'), b(64, 'B'), c(64, '0');
  const auto sums = parse_sums(
      a + "  one two.bin\n" + b + " *sub/three\nSHA256 (four (x)) = " + c + "\n" + a + "  ./five\n", "SHA256SUMS");
  REQUIRE(sums);
  CHECK(sums->size() == 4);
  CHECK(sums->at("one two.bin") == a);
  CHECK(sums->at("sub/three") == std::string(64, 'b'));
  CHECK(sums->at("four (x)") == c);
  CHECK(format_sums({{"b", a}, {"a", c}}) == c + "  a\n" + a + "  b\n");
  CHECK(parse_sums(format_sums(*sums), "again")->size() == 4);
}

TEST_CASE("anything else is refused with its line number") {
  const std::string a(64, 'a');
  for (const std::string& text :
       {std::string("hello\n"), a + " one\n", a + "  ../up\n", a + "  /abs\n", a.substr(1) + "  short\n",
        std::string(64, 'g') + "  hex\n", a + "  \n", "\\" + a + "  odd\n"}) {
    const auto sums = parse_sums(a + "  fine\n" + text, "SHA256SUMS");
    INFO(text);
    REQUIRE(!sums);
    CHECK(sums.error().code == Code::kContent);
    CHECK(sums.error().what.find("line 2") != std::string::npos);
  }
  CHECK(!parse_sums(a + "  x\n" + std::string(64, 'b') + "  x\n", "s"));
}
