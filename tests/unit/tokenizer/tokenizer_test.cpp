#include "dsf/tokenizer/tokenizer.h"

#include "fixtures.h"

using namespace dsf;
using namespace dsf::test;
using tokenizer::Specials;
using tokenizer::StreamDecoder;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

TEST_CASE("every published tokenizer vector of the release") {
  const Tokenizer* tok = release_tokenizer("tokenizer vectors");
  if (tok == nullptr) return;
  const json::Value doc = parse_json(read(shared_data() / "tokenizer_vectors_v41.json"));
  for (const json::Value& c : doc.find("cases")->as_array()) {
    const std::string& text = c.find("text")->as_string();
    CAPTURE(text);
    const auto want = ids_of(*c.find("ids"));
    CHECK(tok->encode(text, Specials::kParse) == want);
    CHECK(tok->decode(want, false) == text);
  }
}

TEST_CASE("the small tokenizer agrees with the public package on tricky strings") {
  const auto lines = json::parse_lines(read(golden() / "tokenizer/mini_vectors.jsonl"), "mini_vectors.jsonl");
  REQUIRE(lines);
  REQUIRE(lines->size() == 121);
  for (size_t i = 1; i < lines->size(); ++i) {
    const json::Value& row = (*lines)[i];
    const std::string& text = row.find("text")->as_string();
    CAPTURE(text);
    CHECK(mini_tokenizer().encode(text, Specials::kParse) == ids_of(*row.find("parse")));
    CHECK(mini_tokenizer().encode(text, Specials::kOff) == ids_of(*row.find("off")));
    CHECK(mini_tokenizer().decode(ids_of(*row.find("off")), false) == text);
    CHECK(mini_tokenizer().decode(ids_of(*row.find("parse")), false) == text);
  }
}

TEST_CASE("marker spellings in plain text stay characters") {
  const Tokenizer* tok = release_tokenizer("marker spellings");
  if (tok == nullptr) return;
  using Ids = std::vector<TokenId>;
  CHECK(tok->encode("<｜Assistant｜>", Specials::kOff) == Ids{30, 28217, 88031, 28217, 32});
  CHECK(tok->encode("<think>", Specials::kOff) == Ids{30, 37947, 32});
  CHECK(tok->encode("｜DSML｜", Specials::kOff) == Ids{28217, 10525, 7398, 28217});
  CHECK(tok->encode("</think>\n\n<｜DSML｜ calls>\n", Specials::kParse) == Ids{128822, 271, 30, 128825, 10699, 1018});
}

TEST_CASE("tokens are found by content, and ids without a token are harmless") {
  const Tokenizer& tok = mini_tokenizer();
  const auto user = tok.find("<｜User｜>");
  REQUIRE(user);
  CHECK(tok.token(*user) == "<｜User｜>");
  CHECK(tok.bytes(*user) == "<｜User｜>");
  CHECK(tok.is_added(*user));
  CHECK_FALSE(tok.is_special(*user));
  CHECK(tok.is_special(*tok.find("<｜end▁of▁sentence｜>")));
  const auto space = tok.find("Ġ");
  REQUIRE(space);
  CHECK(tok.bytes(*space) == " ");
  CHECK_FALSE(tok.is_added(*space));
  CHECK_FALSE(tok.find("no such token"));
  const auto missing = tok.require("<｜nothing｜>");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == Code::kContent);
  CHECK(missing.error().line().find("<｜nothing｜>") != std::string::npos);
  for (const TokenId id : {-1, tok.id_limit(), INT32_MAX, INT32_MIN}) {
    CHECK_FALSE(tok.has(id));
    CHECK(tok.bytes(id).empty());
    CHECK(tok.decode(std::vector<TokenId>{id}, true).empty());
  }
  CHECK(tok.n_tokens() == tok.id_limit());
}

TEST_CASE("gaps in the ids are counted as gaps") {
  const Tokenizer* tok = release_tokenizer("id gaps");
  if (tok == nullptr) return;
  CHECK(tok->id_limit() == 129265);
  CHECK(tok->n_tokens() == 128826);  // 128,000 and 829 added, 3 of them in both
  CHECK_FALSE(tok->has(128815));
  CHECK(tok->token(0) == "<｜begin▁of▁sentence｜>");
}

TEST_CASE("special tokens are skipped only on request, and only those with the flag") {
  const Tokenizer& tok = mini_tokenizer();
  const auto ids = tok.encode("<｜User｜>a<｜end▁of▁sentence｜>", Specials::kParse);
  CHECK(tok.decode(ids, false) == "<｜User｜>a<｜end▁of▁sentence｜>");
  CHECK(tok.decode(ids, true) == "<｜User｜>a");
}

TEST_CASE("a stream of tokens gives the text of the whole, in complete code points") {
  const Tokenizer& tok = mini_tokenizer();
  const std::string text = "naïve 日本語 🙂👩‍👩‍👧 e\xCC\x81 end";
  const auto ids = tok.encode(text, Specials::kOff);
  StreamDecoder stream(tok, true);
  std::string total;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    CHECK(tokenizer::utf8_lossy(piece) == piece);
    total += piece;
  }
  total += stream.finish();
  CHECK(total == text);
}

TEST_CASE("ill-formed bytes become one U+FFFD per maximal subpart, in a stream and at once") {
  const std::string r = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {
      {"\xC0\xAF", r + r},          {"\xE0\x80\x80", r + r + r}, {"\xED\xA0\x80", r + r + r},  {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF0\x9F\x99", r},          {"\xF0\x9F\x99 x", r + " x"}, {"\xE2\x82\xE2\x82\xAC", r + "€"}, {"a\x80z", "a" + r + "z"},
      {"\xF1\x80\x80\xE1\x80\xC2", r + r + r}, {"\xFF\xFE", r + r},
  };
  for (const auto& [bytes, want] : cases) {
    CHECK(tokenizer::utf8_lossy(bytes) == want);
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      tokenizer::Utf8Stream stream;
      std::string out;
      stream.push(std::string_view(bytes).substr(0, cut), out);
      stream.push(std::string_view(bytes).substr(cut), out);
      stream.finish(out);
      CHECK(out == want);
    }
  }
}

TEST_CASE("an incomplete sequence that can no longer become valid is flushed at once") {
  tokenizer::Utf8Stream stream;
  std::string out;
  stream.push("\xF0\x9F", out);
  CHECK(out.empty());
  stream.push("x", out);
  CHECK(out == "\xEF\xBF\xBDx");
}

TEST_CASE("text that is not UTF-8 still comes back byte for byte") {
  for (const std::string text : {"\xFF\xFE", "abc\x80", "\xE2\x82 \xF0\x9F\x99", "1\xC3" "2"}) {
    CHECK(mini_tokenizer().decode_bytes(mini_tokenizer().encode(text, Specials::kParse), false) == text);
  }
}
