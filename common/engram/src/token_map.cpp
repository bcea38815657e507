#include "dsf/engram/token_map.h"

#include <algorithm>
#include <unordered_map>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::engram {
namespace {

// The key two ids must share to get one compressed id. One namespace for normalised text and raw spellings: the released map has
// 27 ids whose raw byte spelling equals another's normalised text.
std::string key_of(int64_t id, const TokenSpelling& t) {
  if (t.spelling.empty()) return "\xff" + std::to_string(id);  // not UTF-8, so no real key equals it
  if (t.text.find("\xEF\xBF\xBD") != std::string::npos) return t.spelling;
  std::string n = normalize(t.text);
  return n.empty() ? t.text : n;
}

}  // namespace

TokenMap TokenMap::build(int64_t n_tokens, const std::function<TokenSpelling(int64_t)>& spelling) {
  TokenMap out;
  out.map_.reserve(static_cast<size_t>(n_tokens));
  std::unordered_map<std::string, int32_t> ids;
  for (int64_t id = 0; id < n_tokens; ++id)
    out.map_.push_back(ids.emplace(key_of(id, spelling(id)), static_cast<int32_t>(ids.size())).first->second);
  out.compressed_size_ = static_cast<int64_t>(ids.size());
  return out;
}

Result<TokenMap> TokenMap::from_ids(std::vector<int32_t> compressed, std::string_view subject) {
  TokenMap out;
  int32_t next = 0;
  for (size_t i = 0; i < compressed.size(); ++i) {
    const int32_t v = compressed[i];
    if (v < 0 || v > next)
      return fail(Code::kContent, std::string(subject), "entry " + std::to_string(i) + " is " + std::to_string(v) +
                  ", ids must be numbered by first appearance (next is " + std::to_string(next) + ")", "rebuild it from tokenizer.json", "token_map");
    next = std::max(next, v + 1);
  }
  out.map_ = std::move(compressed);
  out.compressed_size_ = next;
  return out;
}

Result<TokenMap> TokenMap::load(const std::filesystem::path& path) {
  DSF_TRY(const std::string text, io::read_text(path, uint64_t{64} << 20));
  DSF_TRY(const json::Value root, json::parse(text, path.string()));
  DSF_TRY(const auto ids, json::Cursor(root, path.string()).integers(0, INT32_MAX));
  return from_ids(std::vector<int32_t>(ids.begin(), ids.end()), path.string());
}

std::string TokenMap::digest() const {
  return codec::sha256(std::as_bytes(std::span(map_))).hex();
}

Result<void> TokenMap::expect(int64_t vocab_size, int64_t compressed_vocab_size, std::string_view subject) const {
  if (size() != vocab_size)
    return fail(Code::kContent, std::string(subject), "has " + std::to_string(size()) + " token ids, config.json says vocab_size " +
                std::to_string(vocab_size), "use the tokenizer that belongs to this checkpoint", "token_map");
  if (compressed_size() != compressed_vocab_size)
    return fail(Code::kContent, std::string(subject), "folds to " + std::to_string(compressed_size()) +
                " Engram ids, config.json says engram_compressed_vocab_size " + std::to_string(compressed_vocab_size),
                "use the tokenizer that belongs to this checkpoint", "token_map");
  return {};
}

}  // namespace dsf::engram
