#include "walk.h"

using namespace dsf;
using namespace dsf::test;
using serve::grammar::Matcher;

namespace {

// What allowed() says, by trying every token.
std::vector<int32_t> tried(const serve::grammar::Grammar& grammar, const std::string& text) {
  std::vector<int32_t> out;
  Matcher m(grammar, mini_trie());
  REQUIRE(m.advance(text));
  for (int32_t id = 0; id < mini().id_limit(); ++id) {
    if (mini().bytes(id).empty() || mini().is_added(id)) continue;
    Matcher copy = m;
    if (copy.advance(mini().bytes(id))) out.push_back(id);
  }
  return out;
}

}  // namespace

TEST_CASE("the trie holds every token of the base vocabulary once") {
  const auto& trie = *mini_trie();
  std::vector<int> seen(static_cast<size_t>(mini().id_limit()), 0);
  std::string path;
  for (size_t i = 1; i < trie.byte.size(); ++i) {
    path.resize(trie.depth[i] - 1u);
    path += static_cast<char>(trie.byte[i]);
    CHECK(trie.end[i] > static_cast<int32_t>(i));
    if (const int32_t id = trie.token[i]; id >= 0) {
      ++seen[static_cast<size_t>(id)];
      CHECK(mini().bytes(id) == path);
    }
  }
  for (int32_t id = 0; id < mini().id_limit(); ++id) {
    const bool wanted = !mini().bytes(id).empty() && !mini().is_added(id);
    CHECK(seen[static_cast<size_t>(id)] == (wanted ? 1 : 0));
  }
}

TEST_CASE("the tokens allowed are those that trying each of them allows") {
  const struct {
    const char* schema;
    std::vector<const char*> texts;
  } cases[] = {
      {R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"number"},"tags":{"type":"array","items":{"type":"string","maxLength":3}}}})",
       {"", "{", "{\"", "{\"n", "{\"name\":\"", "{\"name\":\"a\\", "{\"name\":\"\xe2", "{\"n\":1", "{\"n\":1.",
        "{\"n\": -", "{\"tags\":[\"ab", "{\"tags\":[\"abc", "{\"tags\":[\"a\",\n  ", "{\"n\":1}"}},
      {R"({"type":"object"})", {"{\"a\":{\"b\":[1,{\"c\":\"", "{\"a\":{\"b\":[1,2", "{\"a\":tr"}},
      {R"({"type":"string","pattern":"^(ab|a)*c?$"})", {"\"", "\"a", "\"ab"}},
  };
  for (const auto& c : cases) {
    const auto grammar = compiled(c.schema);
    for (const char* text : c.texts) {
      CAPTURE(text);
      Matcher m(grammar, mini_trie());
      REQUIRE(m.advance(text));
      std::vector<int32_t> allowed;
      m.allowed(allowed);
      CHECK(allowed == tried(grammar, text));
      CHECK(allowed.empty() == !m.may_go_on());
    }
  }
}

TEST_CASE("bytes that lead nowhere change nothing") {
  Matcher m(compiled(R"({"enum":["ab","cd"]})"), mini_trie());
  CHECK(m.advance("\"a"));
  CHECK_FALSE(m.advance("x"));
  CHECK_FALSE(m.advance("b\"\""));
  CHECK(m.advance("b\""));
  CHECK(m.may_end());
  CHECK_FALSE(m.may_go_on());
}

TEST_CASE("a long reply through ever new places keeps its tables small and its place") {
  const auto grammar =
      compiled(R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":50000},"maxItems":60000})");
  Matcher m(grammar, mini_trie());
  REQUIRE(m.advance("[\""));
  for (int i = 0; i < 49'999; ++i) REQUIRE(m.advance("x"));
  std::vector<int32_t> allowed;
  m.allowed(allowed);
  for (const int32_t id : allowed) {
    const std::string_view bytes = mini().bytes(id);
    // One character more, then the string has to end.
    const bool fine = bytes.find('"') != std::string_view::npos || bytes.size() == 1 ||
                      static_cast<unsigned char>(bytes[0]) >= 0x80 || bytes[0] == '\\';
    CHECK_MESSAGE(fine, bytes);
  }
  CHECK(m.advance("x\""));
  CHECK_FALSE(m.advance("x"));
  CHECK(m.advance("]"));
  // Depth is only a matter of memory.
  Matcher deep(compiled("true"), mini_trie());
  for (int i = 0; i < 30'000; ++i) REQUIRE(deep.advance("["));
  for (int i = 0; i < 30'000; ++i) REQUIRE(deep.advance("]"));
  CHECK(deep.may_end());
  CHECK_FALSE(deep.may_go_on());
}
