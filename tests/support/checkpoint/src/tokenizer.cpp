#include "tokenizer.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/check.h"
#include "dsf/json/json.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "text.h"

namespace dsf::made_checkpoint {
namespace {

struct Added {
  const char* content;
  bool special, normalized;
};
// serving.md 1.4, in the release's order: three that open the vocabulary, the others at its end.
constexpr Added kFirst[] = {
    {"<｜begin▁of▁sentence｜>", true, false}, {"<｜end▁of▁sentence｜>", true, false}, {"<｜▁pad▁｜>", true, false}};
constexpr Added kLast[] = {{"<｜System｜>", false, true},
                           {"<｜fim▁hole｜>", false, true},
                           {"<｜fim▁begin｜>", false, true},
                           {"<｜fim▁end｜>", false, true},
                           {"<｜User｜>", false, true},
                           {"<｜Assistant｜>", false, true},
                           {"<|EOT|>", true, true},
                           {"<｜tool▁calls▁begin｜>", false, true},
                           {"<｜tool▁calls▁end｜>", false, true},
                           {"<｜tool▁call▁begin｜>", false, true},
                           {"<｜tool▁call▁end｜>", false, true},
                           {"<｜tool▁outputs▁begin｜>", false, true},
                           {"<｜tool▁outputs▁end｜>", false, true},
                           {"<｜tool▁output▁begin｜>", false, true},
                           {"<｜tool▁output▁end｜>", false, true},
                           {"<｜tool▁sep｜>", false, true},
                           {"<think>", false, true},
                           {"</think>", false, true},
                           {"｜DSML｜", false, true},
                           {"<｜latest_reminder｜>", false, true},
                           {"<｜action｜>", false, true},
                           {"<｜query｜>", false, true},
                           {"<｜authority｜>", false, true},
                           {"<｜domain｜>", false, true},
                           {"<｜title｜>", false, true},
                           {"<｜read_url｜>", false, true},
                           {"<｜deepseek_image｜>", true, false},
                           {"<|place_holder_mm_span_0436|>", true, false},
                           {"<｜image｜>", true, false}};

std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3f))};  // the byte alphabet ends below U+0800
}

// The byte alphabet of byte-level BPE, in the order in which the release numbers it: bytes that stand for themselves,
// then the others.
std::vector<std::pair<int, std::string>> byte_alphabet() {
  std::vector<std::pair<int, std::string>> out;
  const auto itself = [](int b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae; };
  for (int b = 0; b < 256; ++b)
    if (itself(b)) out.emplace_back(b, utf8(static_cast<uint32_t>(b)));
  uint32_t next = 0x100;
  for (int b = 0; b < 256; ++b)
    if (!itself(b)) out.emplace_back(b, utf8(next++));
  return out;
}

enum class Kind { kLetter, kIdeograph, kDigit, kSpace, kNewline, kOther };

// Coarse classes: enough to keep merges inside the pieces of the real pre-tokenizer, which never sees this function.
Kind kind_of(std::string_view c) {
  const auto b = static_cast<unsigned char>(c[0]);
  if (b >= '0' && b <= '9') return Kind::kDigit;
  if (b == ' ') return Kind::kSpace;
  if (b == '\n') return Kind::kNewline;
  if (b < 0x80) return (b | 0x20) >= 'a' && (b | 0x20) <= 'z' ? Kind::kLetter : Kind::kOther;
  if (c.starts_with("。") || c.starts_with("，") || c.starts_with("：") || c.starts_with("？")) return Kind::kOther;
  return c.size() >= 3 ? Kind::kIdeograph : Kind::kLetter;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    while (i + n < text.size() && (static_cast<unsigned char>(text[i + n]) & 0xc0) == 0x80) ++n;
    out.push_back(text.substr(i, n));
    i += n;
  }
  return out;
}

// Pieces: up to three digits; a word or a run of signs with one space before it; runs of the other classes.
std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  Kind last = Kind::kNewline;
  size_t length = 0;
  for (const std::string_view c : characters(text)) {
    const Kind kind = kind_of(c);
    const bool joins_space = last == Kind::kSpace && length == 1 && (kind == Kind::kLetter || kind == Kind::kOther);
    const bool same = kind == last && !(kind == Kind::kDigit && length == 3);
    if (out.empty() || !(joins_space || same)) out.emplace_back(), length = 0;
    out.back() += c;
    ++length;
    last = kind;
  }
  return out;
}

struct Vocabulary {
  std::vector<std::string> tokens;  // from id 3
  std::vector<std::pair<std::string, std::string>> merges;
};

using Word = std::vector<std::string>;

void merge_in(Word& word, const std::pair<std::string, std::string>& pair) {
  Word merged;
  for (size_t i = 0; i < word.size(); ++i) {
    if (i + 1 < word.size() && word[i] == pair.first && word[i + 1] == pair.second) {
      merged.push_back(word[i] + word[i + 1]);
      ++i;
    } else {
      merged.push_back(word[i]);
    }
  }
  word = std::move(merged);
}

// Plain BPE training: the most frequent pair, the first in byte order among equals, until the vocabulary is full.
Vocabulary learn(size_t n_tokens) {
  Vocabulary v;
  std::vector<std::string> alias(256);
  for (auto& [byte, text] : byte_alphabet()) {
    v.tokens.push_back(text);
    alias[static_cast<size_t>(byte)] = text;
  }
  std::map<std::string, int> counts;
  for (const std::string& piece : pieces(training_text())) ++counts[piece];
  std::vector<std::pair<Word, int>> words;
  for (const auto& [piece, count] : counts) {
    Word word;
    for (const char c : piece) word.push_back(alias[static_cast<unsigned char>(c)]);
    words.emplace_back(std::move(word), count);
  }
  std::set<std::string> known(v.tokens.begin(), v.tokens.end());
  while (v.tokens.size() < n_tokens) {
    std::map<std::pair<std::string, std::string>, int> pairs;
    for (const auto& [word, count] : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
    DSF_CHECK(!pairs.empty(), "the training text is too short for the vocabulary");
    auto best = pairs.begin();
    for (auto it = pairs.begin(); it != pairs.end(); ++it)
      if (it->second > best->second) best = it;
    v.merges.push_back(best->first);
    for (auto& [word, count] : words) merge_in(word, best->first);
    const std::string token = best->first.first + best->first.second;
    if (known.insert(token).second) v.tokens.push_back(token);  // two ways to one string share its token
  }
  return v;
}

json::Value split(const char* regex) {
  json::Value pattern = json::Value::object();
  pattern.set("Regex", regex);
  json::Value s = json::Value::object();
  s.set("type", "Split");
  s.set("pattern", std::move(pattern));
  s.set("behavior", "Isolated");
  s.set("invert", false);
  return s;
}

json::Value byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  json::Value b = json::Value::object();
  b.set("type", "ByteLevel");
  b.set("add_prefix_space", add_prefix_space);
  b.set("trim_offsets", trim_offsets);
  b.set("use_regex", use_regex);
  return b;
}

json::Value sequence(const char* key, json::Array parts) {
  json::Value s = json::Value::object();
  s.set("type", "Sequence");
  s.set(key, std::move(parts));
  return s;
}

// The release's pre-tokenizer (serving.md 1.2).
json::Value pre_tokenizer() {
  return sequence(
      "pretokenizers",
      {split("\\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
       split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
             " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
       byte_level(false, true, false)});
}

json::Value added_token(const Added& a, int64_t id) {
  json::Value t = json::Value::object();
  t.set("id", id);
  t.set("content", a.content);
  for (const char* off : {"single_word", "lstrip", "rstrip"}) t.set(off, false);
  t.set("normalized", a.normalized);
  t.set("special", a.special);
  return t;
}

json::Value bpe_model(const Vocabulary& v) {
  json::Value model = json::Value::object();
  model.set("type", "BPE");
  for (const char* none : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    model.set(none, nullptr);
  model.set("fuse_unk", false);
  model.set("byte_fallback", false);
  json::Object vocab;
  int64_t id = 0;
  for (const Added& a : kFirst) vocab.emplace_back(a.content, id++);
  for (const std::string& token : v.tokens) vocab.emplace_back(token, id++);
  model.set("vocab", std::move(vocab));
  json::Array merges;
  for (const auto& [left, right] : v.merges) merges.emplace_back(left + " " + right);
  model.set("merges", std::move(merges));
  return model;
}

std::string make_tokenizer_json() {
  constexpr auto kN = static_cast<size_t>(kVocabSize);
  const Vocabulary v = learn(kN - std::size(kFirst) - std::size(kLast));
  json::Array added;
  int64_t id = 0;
  for (const Added& a : kFirst) added.push_back(added_token(a, id++));
  id = static_cast<int64_t>(kN - std::size(kLast));
  for (const Added& a : kLast) added.push_back(added_token(a, id++));
  json::Value root = json::Value::object();
  root.set("version", "1.0");
  root.set("truncation", nullptr);
  root.set("padding", nullptr);
  root.set("added_tokens", std::move(added));
  root.set("normalizer", sequence("normalizers", {}));
  root.set("pre_tokenizer", pre_tokenizer());
  root.set("post_processor", byte_level(true, false, true));
  root.set("decoder", byte_level(true, true, true));
  root.set("model", bpe_model(v));
  return json::dump(root, json::Style::kPretty) + "\n";
}

}  // namespace

std::string tokenizer_json() {
  static const std::string text = make_tokenizer_json();
  return text;
}

const tokenizer::Tokenizer& made_tokenizer() {
  static const tokenizer::Tokenizer t = [] {
    auto parsed = tokenizer::Tokenizer::parse(tokenizer_json(), "made tokenizer");
    DSF_CHECK(parsed.has_value(), "the made tokenizer is one that the project reads");
    return std::move(*parsed);
  }();
  return t;
}

engram::TokenMap made_token_map() {
  const tokenizer::Tokenizer& t = made_tokenizer();
  return engram::TokenMap::build(kVocabSize, [&](int64_t id) {
    const auto token = static_cast<tokenizer::TokenId>(id);
    return engram::TokenSpelling{std::string(t.token(token)), tokenizer::utf8_lossy(t.bytes(token))};
  });
}

}  // namespace dsf::made_checkpoint
