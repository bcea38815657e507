#include <regex>

#include "walk.h"

using namespace dsf;
using namespace dsf::test;

TEST_CASE("expressions hold the texts that the standard library matches, and no others") {
  const char* patterns[] = {"",           "a",           "ab*c",    "a+b?",  "(ab|c)*d",    "[a-c]{2,3}",
                            "[^a-c]x",    "a{0,2}b{2}",  "(a|b|)c", "a.c",   "\\d+\\.b",    "[\\w.]+",
                            "(?:ab){1,}", "((a*)b)*",    "a|b|cd",  "[]a]*", "a{2}",        "\\W\\s?a",
                            "[a\\-c]+",   "(a{1,2}){2}", "[^\\d]b", "x*?y",  "\\x61\\u0062"};
  std::mt19937 rng(3);
  constexpr std::string_view kAlphabet = "abcdxy.-1 ]";
  for (const char* pattern : patterns) {
    CAPTURE(pattern);
    const auto grammar = serve::grammar::of_regex(pattern, "p");
    REQUIRE_MESSAGE(grammar.has_value(), (grammar ? "" : grammar.error().line()));
    // libstdc++ reads "[]a]" as POSIX does; ECMAScript's own spelling differs, ours follows Python.
    const std::regex judge(std::string(pattern) == "[]a]*" ? "[\\]a]*" : pattern);
    for (int i = 0; i < 400; ++i) {
      std::string text;
      for (size_t n = rng() % 6; n > 0; --n) text += kAlphabet[rng() % kAlphabet.size()];
      CHECK_MESSAGE(is_text(*grammar, text) == std::regex_match(text, judge), text);
    }
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::string text = random_text(*grammar, seed);
      // The judge works on bytes: only ASCII can be put before it.
      if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }) &&
          !text.empty())
        CHECK_MESSAGE(std::regex_match(text, judge), text);
    }
  }
}

TEST_CASE("anchors hold a pattern, their absence lets anything stand around it") {
  const auto fits = [](const char* pattern, const char* text) {
    return is_text(compiled(json::dump(json::Object{{"type", "string"}, {"pattern", pattern}})), json::quote(text));
  };
  CHECK(fits("b", "abc"));
  CHECK(fits("^a", "abc"));
  CHECK_FALSE(fits("^b", "abc"));
  CHECK(fits("c$", "abc"));
  CHECK_FALSE(fits("^b$|^c$", "bc"));
  CHECK(fits("^b$|c$", "abc"));
  CHECK(fits("^é+$", "éé"));
  CHECK(fits("^[à-ü]$", "é"));
  CHECK_FALSE(fits("^.$", "éé"));
  CHECK(fits("^\\n$", "\n"));
}

TEST_CASE("wrong and unsupported expressions are refused") {
  for (const char* pattern : {"(",
                              "a)",
                              "[a",
                              "*a",
                              "a**",
                              "a{2,1}",
                              "a{x}",
                              "\\",
                              "(?=a)",
                              "(?<n>a)",
                              "\\b",
                              "\\p{L}",
                              "\\1",
                              "a$b",
                              "(a$)",
                              "b^a",
                              "[b-a]",
                              "a{99999999}",
                              "\\u12",
                              "a++",
                              "(a*){1000}",
                              "((.{1,60}){1,60}){1,60}x",
                              "(ab{1,400}){1,400}",
                              "(a{60000}|b{60000}){1,2}",
                              "((((a{9999}){9999}){9999}){9999}){9999}"}) {
    CAPTURE(pattern);
    const auto out = serve::grammar::of_regex(pattern, "p");
    REQUIRE_FALSE(out.has_value());
    CHECK(out.error().code == Code::kUsage);
    CHECK(out.error().subject == "p");
  }
}

TEST_CASE("wide repetitions are fine as long as their counts can be kept in mind") {
  const auto words = serve::grammar::of_regex("([a-z]{1,100} ){1,500}", "p");
  REQUIRE(words.has_value());
  CHECK(is_text(*words, "ab c "));
  CHECK_FALSE(is_text(*words, "ab c"));
  const auto unclear = serve::grammar::of_regex("(ab{1,300}){1,300}", "p");
  REQUIRE(unclear.has_value());
  CHECK(is_text(*unclear, "abbab"));
}
