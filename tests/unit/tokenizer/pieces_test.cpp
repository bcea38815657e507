// The parts behind the tokenizer: the hand-written pre-tokenizer against PCRE2, and the two ways to merge against each other.
#include <random>

#include "bpe.h"
#include "byte_alphabet.h"
#include "fixtures.h"
#include "pre_tokenizer.h"

using namespace dsf;
using tokenizer::PreTokenizer;

namespace {

std::vector<std::string> pieces(const PreTokenizer& pre, std::string_view text) {
  std::vector<std::string> out;
  pre.split(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}
PreTokenizer make(PreTokenizer::Engine engine) {
  const std::vector<std::string> patterns(std::begin(tokenizer::kReleasePatterns), std::end(tokenizer::kReleasePatterns));
  auto pre = PreTokenizer::create(patterns, "test", engine);
  REQUIRE(pre);
  return std::move(*pre);
}

}  // namespace

TEST_CASE("the scanner cuts as the release's regexes do under PCRE2") {
  const PreTokenizer scanner = make(PreTokenizer::Engine::kAutomatic);
  const PreTokenizer regex = make(PreTokenizer::Engine::kRegex);
  // Every class and every border between alternatives; characters old enough for any PCRE2.
  const std::string_view alphabet[] = {"a",  "Z",  "é",  "\u0301", "1", "²", "٣", "!", "_", "$",  "¿", "…", "+",  " ",  " ", "\t",
                                       "\n", "\r", "\v", "\u00A0", "\u3000", "\u2028", "\u0085", "中", "ー", "々", "㐀", "龥", "龦", "\x01", "\x7F", "\u200D", "🙂", "𝔘"};
  std::mt19937 rng(7);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (size_t n = rng() % 14; n > 0; --n) text += alphabet[rng() % std::size(alphabet)];
    CAPTURE(text);
    const auto want = pieces(regex, text);
    REQUIRE(pieces(scanner, text) == want);
    std::string joined;
    for (const std::string& piece : want) joined += piece;
    REQUIRE(joined == text);
  }
}

TEST_CASE("a pattern that does not compile, or is too long, is refused") {
  for (const std::string& pattern : {std::string("("), std::string("[a"), std::string(5000, 'a')}) {
    const auto pre = PreTokenizer::create({pattern}, "t.json");
    REQUIRE_FALSE(pre);
    CHECK(pre.error().code == Code::kContent);
  }
}

TEST_CASE("a pattern that backtracks without end leaves the text in one piece instead of hanging") {
  const auto pre = PreTokenizer::create({"(a+)+b"}, "t.json");
  REQUIRE(pre);
  const std::string text(40, 'a');
  CHECK(pieces(*pre, text) == std::vector<std::string>{text});
}

TEST_CASE("an empty match makes no piece") {
  const auto pre = PreTokenizer::create({"x*"}, "t.json");
  REQUIRE(pre);
  CHECK(pieces(*pre, "axxb") == std::vector<std::string>{"a", "xx", "b"});
}

TEST_CASE("merging by scan and by heap gives the same symbols") {
  // Merges over a..d with ranks that force every order: left, right, overlapping, chained.
  tokenizer::Bpe bpe;
  bpe.reserve(16, 16);
  const std::string_view bytes[] = {"a", "b", "c", "d"};
  for (int32_t i = 0; i < 4; ++i) bpe.add_token(bytes[i], i);
  const int32_t merges[][3] = {{0, 0, 4}, {4, 1, 5}, {1, 2, 6}, {0, 1, 7}, {6, 3, 8}, {4, 4, 9}, {7, 8, 10}, {9, 5, 11}, {3, 3, 12}, {12, 12, 13}};
  int32_t rank = 0;
  for (const auto& [left, right, merged] : merges) bpe.add_merge(left, right, rank++, merged);
  bpe.finish({});
  std::mt19937 rng(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> scan;
    for (size_t n = rng() % 60; n > 0; --n) scan.push_back(static_cast<int32_t>(rng() % 4));
    std::vector<int32_t> heap = scan;
    bpe.merge_by_scan(scan);
    bpe.merge_by_heap(heap);
    REQUIRE(scan == heap);
  }
}

TEST_CASE("a megabyte without a border is merged in reasonable time") {
  const std::string text(1 << 20, 'x');
  const auto ids = test::mini_tokenizer().encode(text, tokenizer::Specials::kOff);
  CHECK(test::mini_tokenizer().decode_bytes(ids, false) == text);
}

TEST_CASE("the byte alphabet maps back, and anything else stays itself") {
  std::string out;
  CHECK(tokenizer::append_token_bytes("Ġa", out));
  CHECK(out == " a");
  out.clear();
  CHECK(tokenizer::append_token_bytes("æ", out));
  CHECK(out == "\xE6");
  out.clear();
  CHECK(tokenizer::append_token_bytes("Ń", out));  // U+0143, the last of the alphabet: byte 0xAD
  CHECK(out == "\xAD");
  out.clear();
  CHECK_FALSE(tokenizer::append_token_bytes("ń", out));  // U+0144
  CHECK(out == "ń");
  out.clear();
  CHECK_FALSE(tokenizer::append_token_bytes("a b", out));  // a real space is not in the alphabet
  CHECK(out == "a b");
}
