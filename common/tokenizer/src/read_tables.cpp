// tokenizer.json to Tables. The file may be hostile: every number is bounded before it sizes anything, and what this tokenizer does not
// do (normalizers, unknown-token fallbacks, other pre-tokenizers) is refused by name instead of being ignored.
#include <algorithm>
#include <unordered_map>

#include "byte_alphabet.h"
#include "dsf/json/json.h"
#include "tables.h"

namespace dsf::tokenizer {
namespace {

using json::Cursor;
using json::Value;

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr int64_t kMaxId = (1 << 20) - 1;
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxPatterns = 16;

class Reader {
 public:
  explicit Reader(std::string_view subject) : subject_(subject) {}

  Result<std::shared_ptr<const Tokenizer::Tables>> read(std::string_view text) {
    if (text.size() > kMaxFileBytes) return refuse("larger than " + std::to_string(kMaxFileBytes) + " bytes");
    DSF_TRY(const Value root, json::parse(text, subject_));
    const Cursor top(root, std::string(subject_));
    DSF_OK(check_normalizer(top));
    DSF_OK(check_decoder(top));
    DSF_TRY(PreTokenizer pre, pre_tokenizer(top));
    auto tables = std::make_shared<Tokenizer::Tables>(std::move(pre));
    tables->subject = subject_;
    DSF_TRY(const Cursor model, top.at("model"));
    DSF_OK(check_model(model));
    DSF_OK(vocabulary(model));
    DSF_OK(added_tokens(top));
    DSF_OK(fill_entries(*tables));
    DSF_OK(merges(model, *tables));
    return std::shared_ptr<const Tokenizer::Tables>(std::move(tables));
  }

 private:
  struct Token {
    std::string_view text;  // into the JSON tree
    int64_t id;
    bool added = false, special = false, normalized = false, base = false;
  };

  Unexpected refuse(std::string what) const {
    return fail(Code::kContent, std::string(subject_), std::move(what), "take tokenizer.json from the checkpoint again", "tokenizer");
  }

  Result<void> check_normalizer(const Cursor& top) const {
    const auto normalizer = top.maybe("normalizer");
    if (!normalizer) return {};
    DSF_TRY(const std::string type, normalizer->string_at("type"));
    if (type == "Sequence") {
      DSF_TRY(const Cursor list, normalizer->at("normalizers"));
      DSF_TRY(const auto items, list.elements());
      if (items.empty()) return {};
    }
    return normalizer->fail("a normalizer is not supported: the model's text is encoded unchanged");
  }

  Result<void> check_decoder(const Cursor& top) const {
    const auto decoder = top.maybe("decoder");
    if (!decoder) return {};
    DSF_TRY(const std::string type, decoder->string_at("type"));
    if (type != "ByteLevel") return decoder->fail("decoder \"" + type + "\" is not supported; ByteLevel is");
    return {};
  }

  Result<void> check_byte_level(const Cursor& c) const {
    DSF_TRY(const bool prefix, c.boolean_or("add_prefix_space", true));
    DSF_TRY(const bool regex, c.boolean_or("use_regex", true));
    if (prefix || regex) return c.fail("ByteLevel with add_prefix_space or use_regex is not supported");
    return {};
  }

  Result<std::string> pattern(const Cursor& split) const {
    DSF_TRY(const std::string behavior, split.string_at("behavior"));
    DSF_TRY(const bool invert, split.boolean_or("invert", false));
    if (behavior != "Isolated" || invert) return split.fail("a split that is not \"Isolated\", or inverted, is not supported");
    DSF_TRY(const Cursor p, split.at("pattern"));
    return p.string_at("Regex");
  }

  Result<PreTokenizer> pre_tokenizer(const Cursor& top) const {
    DSF_TRY(const Cursor pre, top.at("pre_tokenizer"));
    DSF_TRY(const std::string type, pre.string_at("type"));
    if (type != "Sequence") return pre.fail("pre-tokenizer \"" + type + "\" is not supported; a Sequence of splits and ByteLevel is");
    DSF_TRY(const Cursor list, pre.at("pretokenizers"));
    DSF_TRY(const auto steps, list.elements());
    if (steps.empty() || steps.size() > kMaxPatterns) return list.fail("between 1 and 16 steps expected");
    std::vector<std::string> patterns;
    for (const Cursor& step : steps) {
      DSF_TRY(const std::string kind, step.string_at("type"));
      const bool last = &step == &steps.back();
      if (last != (kind == "ByteLevel") || (!last && kind != "Split")) return step.fail("splits with ByteLevel as the last step expected");
      if (last) {
        DSF_OK(check_byte_level(step));
      } else {
        DSF_TRY(std::string regex, pattern(step));
        patterns.push_back(std::move(regex));
      }
    }
    return PreTokenizer::create(patterns, subject_);
  }

  Result<void> check_model(const Cursor& model) const {
    DSF_TRY(const std::string type, model.string_or("type", "BPE"));
    if (type != "BPE") return model.fail("model \"" + type + "\" is not supported; BPE is");
    for (const char* key : {"dropout", "unk_token"}) {
      if (const auto c = model.maybe(key)) return c->fail("is not supported");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      DSF_TRY(const std::string affix, model.string_or(key, ""));
      if (!affix.empty()) return model.fail(std::string(key) + " is not supported");
    }
    for (const char* key : {"byte_fallback", "ignore_merges"}) {
      DSF_TRY(const bool on, model.boolean_or(key, false));
      if (on) return model.fail(std::string(key) + " is not supported");
    }
    return {};
  }

  Result<void> vocabulary(const Cursor& model) {
    DSF_TRY(const Cursor vocab, model.at("vocab"));
    if (!vocab.value().is_object()) return vocab.fail("object expected, got " + std::string(vocab.value().type_name()));
    for (const auto& [text, value] : vocab.value().as_object()) {
      const auto id = value.to_i64();
      if (!id || *id < 0 || *id > kMaxId) return vocab.fail("the id of " + json::quote(text) + " is not an integer from 0 to 1048575");
      DSF_OK(add({text, *id, false, false, false, true}));
    }
    return {};
  }

  Result<void> added_tokens(const Cursor& top) {
    const auto list = top.maybe("added_tokens");
    if (!list) return {};
    DSF_TRY(const auto items, list->elements());
    for (const Cursor& item : items) {
      DSF_TRY(const int64_t id, item.integer_at("id", 0, kMaxId));
      DSF_TRY(const Cursor content, item.at("content"));
      DSF_OK(content.string());
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        DSF_TRY(const bool on, item.boolean_or(key, false));
        if (on) return item.fail(std::string(key) + " is not supported");
      }
      DSF_TRY(const bool special, item.boolean_or("special", false));
      DSF_TRY(const bool normalized, item.boolean_or("normalized", !special));
      DSF_OK(add({content.value().as_string(), id, true, special, normalized, false}));
    }
    return {};
  }

  // One string has one id and one id has one string; an added token may repeat a base token exactly.
  Result<void> add(const Token& t) {
    if (t.text.empty() || t.text.size() > kMaxTokenBytes) {
      return refuse("the token of id " + std::to_string(t.id) + " is empty or longer than " + std::to_string(kMaxTokenBytes) + " bytes");
    }
    if (static_cast<size_t>(t.id) >= by_id_.size()) by_id_.resize(std::max(static_cast<size_t>(t.id) + 1, by_id_.size() * 2), -1);
    int32_t& index = by_id_[static_cast<size_t>(t.id)];
    const auto [it, fresh] = by_text_.try_emplace(t.text, t.id);
    if (it->second != t.id) return refuse("token " + json::quote(t.text) + " has two ids, " + std::to_string(it->second) + " and " + std::to_string(t.id));
    if (index < 0) {
      index = static_cast<int32_t>(tokens_.size());
      tokens_.push_back(t);
      return {};
    }
    Token& known = tokens_[static_cast<size_t>(index)];
    if (known.text != t.text) return refuse("id " + std::to_string(t.id) + " is used by " + json::quote(known.text) + " and " + json::quote(t.text));
    if (known.added || !t.added) return refuse("token " + json::quote(t.text) + " is listed twice");
    known.added = true;
    known.special = t.special;
    known.normalized = t.normalized;
    return {};
  }

  Result<void> fill_entries(Tokenizer::Tables& out) {
    if (tokens_.empty()) return refuse("there are no tokens");
    int64_t limit = 0;
    size_t text_bytes = 0;
    for (const Token& t : tokens_) {
      limit = std::max(limit, t.id + 1);
      text_bytes += t.text.size();
    }
    out.entries.resize(static_cast<size_t>(limit));
    out.n_tokens = static_cast<int64_t>(tokens_.size());
    out.ids.reserve(tokens_.size());
    out.arena.reserve(text_bytes * 2);  // bytes are never longer than the token; views must not move
    for (const Token& t : tokens_) {
      Entry& entry = out.entries[static_cast<size_t>(t.id)];
      const size_t token_at = out.arena.size();
      out.arena += t.text;
      const size_t bytes_at = out.arena.size();
      const bool byte_level = append_token_bytes(t.text, out.arena);
      const std::string_view arena = out.arena;
      entry = {arena.substr(token_at, t.text.size()), arena.substr(bytes_at), true, t.added, t.special};
      const auto id = static_cast<int32_t>(t.id);
      out.ids.insert(entry.token, id);
      if (t.added) (t.normalized ? out.normalized : out.raw).add(entry.token, id);
      if (t.base && byte_level) base_.emplace_back(entry.bytes, id);
    }
    return {};
  }

  // "a b" or ["a", "b"]: both spellings exist.
  Result<std::pair<std::string_view, std::string_view>> merge_pair(const Value& merge) const {
    if (merge.is_string()) {
      const std::string_view text = merge.as_string();
      const size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        return std::pair{text.substr(0, space), text.substr(space + 1)};
      }
    } else if (merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() && merge.as_array()[1].is_string()) {
      return std::pair{std::string_view(merge.as_array()[0].as_string()), std::string_view(merge.as_array()[1].as_string())};
    }
    return refuse("a merge is not a pair of tokens");
  }

  Result<void> merges(const Cursor& model, Tokenizer::Tables& out) {
    DSF_TRY(const Cursor list, model.at("merges"));
    if (!list.value().is_array()) return list.fail("array expected, got " + std::string(list.value().type_name()));
    const json::Array& items = list.value().as_array();
    out.bpe.reserve(base_.size(), items.size());
    for (const auto& [bytes, id] : base_) out.bpe.add_token(bytes, id);
    std::string joined;
    int32_t rank = 0;
    for (const Value& item : items) {
      DSF_TRY(const auto pair, merge_pair(item));
      joined.assign(pair.first).append(pair.second);
      int32_t ids[3];
      const std::string_view parts[3] = {pair.first, pair.second, joined};
      for (int i = 0; i < 3; ++i) {
        ids[i] = out.ids.find(parts[i]);
        if (ids[i] < 0) return refuse("merge " + std::to_string(rank) + " names " + json::quote(parts[i]) + ", which is no token");
      }
      out.bpe.add_merge(ids[0], ids[1], rank++, ids[2]);
    }
    out.bpe.finish(base_);
    return {};
  }

  std::string subject_;
  std::vector<Token> tokens_;
  std::vector<int32_t> by_id_;  // index into tokens_, -1 for none
  std::unordered_map<std::string_view, int64_t> by_text_;
  std::vector<std::pair<std::string_view, int32_t>> base_;  // (bytes, id) of base tokens in the byte alphabet
};

}  // namespace

Result<std::shared_ptr<const Tokenizer::Tables>> read_tables(std::string_view json_text, std::string_view subject) {
  return Reader(subject).read(json_text);
}

}  // namespace dsf::tokenizer
