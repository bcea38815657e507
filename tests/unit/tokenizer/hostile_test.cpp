// tokenizer.json files that are broken or mean harm: each is refused with one line that names the trouble.
#include <functional>

#include "fixtures.h"

using namespace dsf;
using namespace dsf::test;
using json::Value;
using tokenizer::Tokenizer;

namespace {

// A tokenizer of four tokens, small enough to break by hand.
Value small() {
  return parse_json(R"({"added_tokens": [{"id": 4, "content": "<x>", "special": true, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": []},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": " ?[a-z]+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3}, "merges": ["a b", ["ab", "ab"]]}})");
}

void refused(const std::function<void(Value&)>& change, std::string_view words) {
  Value doc = small();
  change(doc);
  const auto tok = Tokenizer::parse(json::dump(doc), "t.json");
  CAPTURE(words);
  REQUIRE_FALSE(tok);
  CHECK(tok.error().code == Code::kContent);
  CHECK_MESSAGE(tok.error().line().find(words) != std::string::npos, tok.error().line());
}

Value& model(Value& doc) { return *doc.find("model"); }
Value& step(Value& doc, size_t i) { return doc.find("pre_tokenizer")->find("pretokenizers")->as_array()[i]; }
Value& added(Value& doc) { return doc.find("added_tokens")->as_array()[0]; }

}  // namespace

TEST_CASE("the small file is fine before it is broken") {
  const auto tok = Tokenizer::parse(json::dump(small()), "t.json");
  REQUIRE_MESSAGE(tok, tok.error().line());
  CHECK(tok->encode("abab<x>aab", tokenizer::Specials::kParse) == std::vector<int32_t>{3, 4, 0, 2});
  CHECK(tok->encode("aczb", tokenizer::Specials::kOff) == std::vector<int32_t>{2});  // bytes without a token are dropped
}

TEST_CASE("broken vocabularies are refused") {
  refused([](Value& d) { model(d).set("vocab", Value::array()); }, "vocab: object expected");
  refused([](Value& d) { model(d).find("vocab")->set("c", -1); }, "\"c\"");
  refused([](Value& d) { model(d).find("vocab")->set("c", 4000000000LL); }, "\"c\"");
  refused([](Value& d) { model(d).find("vocab")->set("c", 1.5); }, "\"c\"");
  refused([](Value& d) { model(d).find("vocab")->set("c", 2); }, "id 2 is used by \"ab\" and \"c\"");
  refused([](Value& d) { model(d).find("vocab")->set("", 9); }, "empty");
  refused([](Value& d) { model(d).find("vocab")->set(std::string(5000, 'c'), 9); }, "longer than 4096");
  refused([](Value& d) {
    model(d).set("vocab", Value::object());
    model(d).set("merges", Value::array());
    d.set("added_tokens", Value::array());
  }, "no tokens");
}

TEST_CASE("broken merges are refused") {
  refused([](Value& d) { model(d).set("merges", "a b"); }, "merges: array expected");
  refused([](Value& d) { model(d).find("merges")->push("a"); }, "not a pair");
  refused([](Value& d) { model(d).find("merges")->push("a b c"); }, "not a pair");
  refused([](Value& d) { model(d).find("merges")->push(3); }, "not a pair");
  refused([](Value& d) { model(d).find("merges")->push("b a"); }, "\"ba\", which is no token");
}

TEST_CASE("broken added tokens are refused") {
  refused([](Value& d) { added(d).set("id", -3); }, "added_tokens[0].id");
  refused([](Value& d) { added(d).set("content", 7); }, "added_tokens[0].content");
  refused([](Value& d) { added(d).set("id", 2); }, "id 2 is used by");
  refused([](Value& d) { added(d).set("content", "ab"); }, "has two ids");
  refused([](Value& d) { added(d).set("lstrip", true); }, "lstrip is not supported");
  refused([](Value& d) { d.find("added_tokens")->push(added(d)); }, "listed twice");
}

TEST_CASE("features that would change the ids are refused by name") {
  refused([](Value& d) { d.set("normalizer", parse_json(R"({"type": "NFC"})")); }, "normalizer");
  refused([](Value& d) { d.set("decoder", parse_json(R"({"type": "Metaspace"})")); }, "Metaspace");
  refused([](Value& d) { model(d).set("type", "Unigram"); }, "Unigram");
  refused([](Value& d) { model(d).set("byte_fallback", true); }, "byte_fallback");
  refused([](Value& d) { model(d).set("unk_token", "a"); }, "unk_token");
  refused([](Value& d) { model(d).set("dropout", 0.1); }, "dropout");
  refused([](Value& d) { model(d).set("end_of_word_suffix", "</w>"); }, "end_of_word_suffix");
  refused([](Value& d) { d.set("pre_tokenizer", nullptr); }, "pre_tokenizer");
  refused([](Value& d) { step(d, 1).set("use_regex", true); }, "use_regex");
  refused([](Value& d) { step(d, 0).set("behavior", "Removed"); }, "Isolated");
  refused([](Value& d) { step(d, 0).set("pattern", parse_json(R"({"Regex": "("})")); }, "pattern is not usable");
  refused([](Value& d) { step(d, 0).set("type", "Digits"); }, "splits with ByteLevel");
}

TEST_CASE("every prefix of a tokenizer file is refused without a crash") {
  const std::string text = json::dump(small());
  for (size_t n = 0; n < text.size(); ++n) {
    const auto tok = Tokenizer::parse(std::string_view(text).substr(0, n), "t.json");
    REQUIRE_FALSE(tok);
    CHECK(tok.error().line().starts_with("t.json: "));
  }
}

TEST_CASE("a file that is not there is missing, not malformed") {
  const TempDir dir;
  const auto tok = Tokenizer::load(dir / "tokenizer.json");
  REQUIRE_FALSE(tok);
  CHECK(tok.error().code == Code::kMissing);
}
