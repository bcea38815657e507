#include <doctest/doctest.h>

#include "dsf/json/json.h"

using namespace dsf;
using json::Style;
using json::Value;

namespace {
Value ok(std::string_view text, const json::ParseOptions& options = {}) {
  auto v = json::parse(text, "t.json", options);
  REQUIRE_MESSAGE(v, text);
  return *v;
}
std::string python(std::string_view text) { return json::dump(ok(text, {.reject_duplicate_keys = false}), Style::kPython); }
}  // namespace

TEST_CASE("values keep their order and their kinds") {
  const Value v = ok(R"({"b":1,"a":[true,null,-2,2.5,"x"],"c":{}})");
  CHECK(json::dump(v) == R"({"b":1,"a":[true,null,-2,2.5,"x"],"c":{}})");
  CHECK(json::dump(v, Style::kPython) == R"({"b": 1, "a": [true, null, -2, 2.5, "x"], "c": {}})");
}

TEST_CASE("numbers print as Python prints them") {
  CHECK(python("[1e16, 0.00001, 1E5, 2.50, 1.0, -0.0, 0.0001, 123456789012345680.0]") ==
        "[1e+16, 1e-05, 100000.0, 2.5, 1.0, -0.0, 0.0001, 1.2345678901234568e+17]");
  CHECK(python("[123456789012345678901234567890, 18446744073709551615, -9223372036854775808]") ==
        "[123456789012345678901234567890, 18446744073709551615, -9223372036854775808]");
  CHECK(python("-0") == "0");
}

TEST_CASE("strings are escaped as Python does without ASCII escaping") {
  CHECK(python(R"("a\"\\\/\n\r\t\b\f\u0001\u007f\u00e9\ud83d\ude00")") == "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\x7f\xC3\xA9\xF0\x9F\x98\x80\"");
}

TEST_CASE("duplicate keys: rejected, or the last value at the first place") {
  CHECK_FALSE(json::parse(R"({"a":1,"a":2})", "t"));
  CHECK(python(R"({"a":1,"b":2,"a":3})") == R"({"a": 3, "b": 2})");
}

TEST_CASE("malformed documents are refused with line and column") {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":}", "nul", "1 2", "NaN", "\"\\ud800\"", "\"\xff\"", "1e999", "\xEF\xBB\xBF{}", "[1]x", "'a'"}) {
    INFO(bad);
    const auto v = json::parse(bad, "t.json");
    REQUIRE_FALSE(v);
    CHECK(v.error().code == Code::kContent);
    CHECK(v.error().subject == "t.json");
  }
  CHECK(json::parse("{\n  \"a\": x}", "t").error().what.find("line 2") != std::string::npos);
  CHECK_FALSE(json::parse(std::string(1000, '[') + std::string(1000, ']'), "t"));
}

TEST_CASE("a cursor names the place of every error") {
  const Value v = ok(R"({"a":{"n":-1,"s":"x","l":[1,"2"]}})");
  const json::Cursor root(v, "c.json");
  const auto a = root.at("a");
  REQUIRE(a);
  CHECK(a->integer_at("n", 0).error().line() == "c.json: a.n: -1 is out of range (0)");
  CHECK(a->integer_at("s").error().line() == "c.json: a.s: integer expected, got string");
  CHECK(a->integer_at("zz").error().line() == "c.json: a.zz: missing");
  CHECK((*a->at("l")).integers().error().line() == "c.json: a.l[1]: integer expected, got string");
  CHECK(a->integer_or("zz", 7) == 7);
}

TEST_CASE("one value per line") {
  const auto v = json::parse_lines("{\"a\":1}\n\n[2]\n", "x.jsonl");
  REQUIRE(v);
  CHECK(v->size() == 2);
  CHECK(json::parse_lines("1\n{\n", "x.jsonl").error().subject == "x.jsonl:2");
}
