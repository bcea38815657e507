#include <algorithm>

#include "tools/serve/grammar/grammar_filter.h"
#include "walk.h"

using namespace dsf;
using namespace dsf::test;
using serve::grammar::GrammarFilter;

namespace {

constexpr int32_t kEos = 1;

std::vector<int32_t> allowed_by(GrammarFilter& filter) {
  std::vector<int32_t> out;
  REQUIRE(filter.allowed(out));
  return out;
}

std::ptrdiff_t count_eos(GrammarFilter& filter) {
  const std::vector<int32_t> ids = allowed_by(filter);
  return std::count(ids.begin(), ids.end(), kEos);
}

void commit_text(GrammarFilter& filter, std::string_view text) {
  for (const char c : text) {
    for (const int32_t id : allowed_by(filter)) {
      if (mini().bytes(id) == std::string_view(&c, 1)) {
        filter.commit(id);
        break;
      }
    }
  }
}

}  // namespace

TEST_CASE("json_object is an object of anything") {
  const auto grammar = serve::grammar::any_object();
  REQUIRE(grammar.has_value());
  CHECK(is_text(*grammar, R"({"a":{"b":[1,"x",null]}})"));
  CHECK_FALSE(is_text(*grammar, "[1]"));
  CHECK_FALSE(is_text(*grammar, "1"));
}

TEST_CASE("a list of texts holds these texts, also when one begins another") {
  const auto grammar = serve::grammar::of_texts({"yes", "no", "not sure", "é"}, "choice");
  REQUIRE(grammar.has_value());
  for (const char* text : {"yes", "no", "not sure", "é"}) CHECK(is_text(*grammar, text));
  for (const char* text : {"", "ye", "not", "yesno"}) CHECK_FALSE(is_text(*grammar, text));
  CHECK_FALSE(serve::grammar::of_texts({}, "choice").has_value());
  CHECK_FALSE(serve::grammar::of_texts({"a", ""}, "choice").has_value());
}

TEST_CASE("the end of the turn is allowed when the text is whole, and alone when nothing may follow") {
  GrammarFilter filter(mini(), compiled(R"({"type":"integer","maximum":12,"minimum":1})"), mini_trie(), kEos);
  CHECK(count_eos(filter) == 0);
  commit_text(filter, "1");
  CHECK(count_eos(filter) == 1);
  CHECK(allowed_by(filter).size() > 1);
  commit_text(filter, "2");
  CHECK(allowed_by(filter) == std::vector<int32_t>{kEos});
  filter.commit(kEos);
  CHECK(allowed_by(filter) == std::vector<int32_t>{kEos});
}

TEST_CASE("text that stands already is part of the reply") {
  GrammarFilter filter(mini(), compiled(R"({"const":"abc"})"), mini_trie(), kEos);
  CHECK_FALSE(filter.prefill("\"b"));
  CHECK(filter.prefill("\"ab"));
  commit_text(filter, "c\"");
  CHECK(allowed_by(filter) == std::vector<int32_t>{kEos});
}

TEST_CASE("a reply may open a call block instead, and is free from there on") {
  const std::string opening = "\n\n<｜DSML｜ calls>\n";
  GrammarFilter json(mini(), *serve::grammar::any_object(), mini_trie(), kEos, opening);
  commit_text(json, "{\"");
  for (const int32_t id : allowed_by(json)) CHECK_FALSE(mini().is_added(id));
  GrammarFilter calls(mini(), *serve::grammar::any_object(), mini_trie(), kEos, opening);
  std::vector<int32_t> out;
  std::string text;
  commit_text(calls, "\n");
  text = "\n";
  while (calls.allowed(out)) {
    REQUIRE_FALSE(out.empty());
    text += mini().bytes(out.back());
    calls.commit(out.back());
  }
  CHECK(text == opening);
}
