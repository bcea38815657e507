#include "dsf/tokenizer/tokenizer.h"

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "tables.h"

namespace dsf::tokenizer {

namespace {
// Calls on_text for text between matches and on_token for matches.
template <class OnText, class OnToken>
void split_at_tokens(const AddedTokenMatcher& matcher, std::string_view text, OnText on_text, OnToken on_token) {
  size_t pos = 0;
  while (pos < text.size()) {
    const auto match = matcher.find(text, pos);
    if (match.begin > pos) on_text(text.substr(pos, match.begin - pos));
    if (match.id >= 0) on_token(match.id);
    pos = match.begin + match.size;
  }
}
}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view json_text, std::string_view subject) {
  DSF_TRY(auto tables, read_tables(json_text, subject));
  return Tokenizer(std::move(tables));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  DSF_TRY(const std::string text, io::read_text(tokenizer_json));
  return parse(text, tokenizer_json.string());
}

TokenId Tokenizer::id_limit() const { return static_cast<TokenId>(tables_->entries.size()); }
int64_t Tokenizer::n_tokens() const { return tables_->n_tokens; }
const std::string& Tokenizer::subject() const { return tables_->subject; }
bool Tokenizer::has(TokenId id) const { return id >= 0 && id < id_limit() && tables_->entries[static_cast<size_t>(id)].present; }
std::string_view Tokenizer::token(TokenId id) const { return has(id) ? tables_->entries[static_cast<size_t>(id)].token : std::string_view(); }
std::string_view Tokenizer::bytes(TokenId id) const { return has(id) ? tables_->entries[static_cast<size_t>(id)].bytes : std::string_view(); }
bool Tokenizer::is_added(TokenId id) const { return has(id) && tables_->entries[static_cast<size_t>(id)].added; }
bool Tokenizer::is_special(TokenId id) const { return has(id) && tables_->entries[static_cast<size_t>(id)].special; }

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const int32_t id = tables_->ids.find(token);
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

Result<TokenId> Tokenizer::require(std::string_view token) const {
  if (const auto id = find(token)) return *id;
  return fail(Code::kContent, subject(), "there is no token " + json::quote(token), "take tokenizer.json from the checkpoint again", "tokenizer");
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<TokenId> out;
  encode_append(text, specials, out);
  return out;
}

void Tokenizer::encode_append(std::string_view text, Specials specials, std::vector<TokenId>& out) const {
  const PieceSink on_piece = [&](std::string_view piece) { tables_->bpe.encode(piece, out); };
  const auto plain = [&](std::string_view part) { tables_->pre_tokenizer.split(part, on_piece); };
  if (specials == Specials::kOff) return plain(text);
  const auto on_token = [&](TokenId id) { out.push_back(id); };
  split_at_tokens(
      tables_->raw, text, [&](std::string_view part) { split_at_tokens(tables_->normalized, part, plain, on_token); }, on_token);
}

std::string Tokenizer::decode_bytes(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  for (const TokenId id : ids) {
    if (!(skip_special && is_special(id))) out += bytes(id);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const { return utf8_lossy(decode_bytes(ids, skip_special)); }

std::string StreamDecoder::push(TokenId id) { return push(std::span(&id, 1)); }
std::string StreamDecoder::push(std::span<const TokenId> ids) {
  std::string out;
  utf8_.push(tokenizer_.decode_bytes(ids, skip_special_), out);
  return out;
}
std::string StreamDecoder::finish() {
  std::string out;
  utf8_.finish(out);
  return out;
}

}  // namespace dsf::tokenizer
