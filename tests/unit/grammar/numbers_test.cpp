#include <cmath>

#include "tools/serve/grammar/decimals.h"
#include "walk.h"

using namespace dsf;
using namespace dsf::test;

namespace {

std::string bounds(const char* type, const char* low, double min, const char* high, double max) {
  return json::dump(json::Object{{"type", type}, {low, min}, {high, max}});
}

}  // namespace

TEST_CASE("integers between bounds are exactly those between them") {
  std::mt19937 rng(7);
  for (int round = 0; round < 60; ++round) {
    const int span = round % 3 == 0 ? 12 : 400;
    const int min = static_cast<int>(rng() % 601) - 300,
              max = min + static_cast<int>(rng() % static_cast<unsigned>(span));
    const bool open = round % 4 == 0 && max - min > 2;
    const auto grammar = compiled(
        bounds("integer", open ? "exclusiveMinimum" : "minimum", min, open ? "exclusiveMaximum" : "maximum", max));
    CAPTURE(min);
    CAPTURE(max);
    for (int i = min - 15; i <= max + 15; ++i) {
      const bool inside = open ? i > min && i < max : i >= min && i <= max;
      CHECK_MESSAGE(is_text(grammar, std::to_string(i)) == inside, i);
    }
    CHECK_FALSE(is_text(grammar, "-0"));
  }
}

TEST_CASE("numbers between bounds are between them, and the bounds themselves only when closed") {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 60; ++round) {
    const double scale = round % 2 == 0 ? 1000.0 : 8.0;
    const double min = std::round((static_cast<double>(rng() % 2000) - 1000) / 1000 * scale * 100) / 100;
    const double max = min + static_cast<double>(1 + rng() % 500) / 100;
    const bool open = round % 3 == 0;
    const auto grammar = compiled(
        bounds("number", open ? "exclusiveMinimum" : "minimum", min, open ? "exclusiveMaximum" : "maximum", max));
    CAPTURE(min);
    CAPTURE(max);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(grammar, rng());
      REQUIRE_FALSE(text.empty());
      const double x = *parse_json(text).to_double();
      CHECK_MESSAGE((open ? x > min && x < max : x >= min && x <= max), text);
    }
    CHECK(is_text(grammar, json::dump(json::Value(std::round((min + max) / 2 * 1e4) / 1e4))));
    CHECK_FALSE(is_text(grammar, json::dump(json::Value(min - 0.001))));
    CHECK_FALSE(is_text(grammar, json::dump(json::Value(max + 0.001))));
    // json::dump writes 3 as 3.0, which is the bound as well.
    CHECK(is_text(grammar, json::dump(json::Value(min))) == !open);
    CHECK(is_text(grammar, json::dump(json::Value(max))) == !open);
  }
}

TEST_CASE("one-sided bounds and unbounded numbers stay within what every reader takes") {
  CHECK(is_text(compiled(R"({"type":"integer","minimum":0})"), "999999999999999999"));
  CHECK_FALSE(is_text(compiled(R"({"type":"integer","minimum":0})"), "-1"));
  CHECK_FALSE(is_text(compiled(R"({"type":"integer"})"), "1000000000000000000"));
  CHECK(is_text(compiled(R"({"type":"integer","maximum":-5})"), "-123456"));
  CHECK_FALSE(is_text(compiled(R"({"type":"integer","maximum":-5})"), "-4"));
  CHECK(is_text(compiled(R"({"type":"integer","maximum":1e30})"), "12"));
  CHECK(is_text(compiled(R"({"type":"number","exclusiveMinimum":0})"), "0.001"));
  CHECK_FALSE(is_text(compiled(R"({"type":"number","exclusiveMinimum":0})"), "0"));
  CHECK_FALSE(is_text(compiled(R"({"type":"number","exclusiveMinimum":0})"), "0.0"));
  CHECK(is_text(compiled(R"({"type":"number","minimum":1e-7,"maximum":1e-6})"), "0.0000005"));
  CHECK(is_text(compiled(R"({"type":"number"})"), "-0.5e-10"));
  CHECK_FALSE(is_text(compiled(R"({"type":"number"})"), "1e100"));
}

TEST_CASE("decimals are read as written, whatever their exponent") {
  const auto text = [](const char* number) {
    const auto d = serve::grammar::to_decimal(parse_json(number));
    return d ? (d->negative ? "-" : "") + d->whole + "." + d->fraction : std::string("none");
  };
  CHECK(text("0") == "0.");
  CHECK(text("-0.0") == "0.");
  CHECK(text("12.50") == "12.5");
  CHECK(text("-1e3") == "-1000.");
  CHECK(text("1.5e-7") == "0.00000015");
  CHECK(text("1e18") == "none");
  CHECK(text("1e-30") == "none");
}
