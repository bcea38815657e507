#pragma once
// Byte-level BPE tokenizer read from a checkpoint's tokenizer.json, and the incremental decoder for streams.
//
// A Tokenizer is immutable once made: any number of threads may use one object, nothing is cached behind its back. It is cheap to move and
// copies share their tables. Token ids are looked up by content, never assumed. Views returned by token() and bytes() live as long as any
// copy of the Tokenizer. Source: serving.md 1; engram.md 2.2 (what the Engram token map reads).
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::tokenizer {

using TokenId = int32_t;

// Whether text may become added tokens. User text must be encoded with kOff (serving.md 1.5): "<｜Assistant｜>" then stays characters.
enum class Specials { kOff, kParse };

class Tokenizer {
 public:
  // json_text: the whole file. subject names it in errors. Errors: kContent (malformed, out of bounds, a feature this reader does not
  // have, merges that name no token); the file may be hostile.
  static Result<Tokenizer> parse(std::string_view json_text, std::string_view subject);
  // Errors: kMissing, kLocal, and those of parse().
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);

  // One past the largest id: ids 0 .. id_limit()-1 may have gaps.
  TokenId id_limit() const;
  // Entries: base vocabulary plus added tokens, each id once. Equal to id_limit() when there are no gaps.
  int64_t n_tokens() const;
  bool has(TokenId id) const;
  // The token string as the file spells it: byte-level alias ("Ġthe") or added-token content. Empty for an id without a token.
  std::string_view token(TokenId id) const;
  // The bytes it decodes to (serving.md 1.6). Not necessarily whole UTF-8. Empty for an id without a token.
  std::string_view bytes(TokenId id) const;
  bool is_added(TokenId id) const;
  bool is_special(TokenId id) const;  // the file's "special" flag: what skip_special removes
  // Id of a token string, in the spelling of token().
  std::optional<TokenId> find(std::string_view token) const;
  // The same, or an error (kContent) that names what is missing.
  Result<TokenId> require(std::string_view token) const;
  const std::string& subject() const;  // what parse() was told, or the path

  // Text to ids. No BOS, no EOS. Text should be UTF-8; ill-formed bytes are kept and come back from decode_bytes().
  std::vector<TokenId> encode(std::string_view text, Specials specials) const;
  void encode_append(std::string_view text, Specials specials, std::vector<TokenId>& out) const;

  // Ids to bytes, concatenated; ids without a token give nothing.
  std::string decode_bytes(std::span<const TokenId> ids, bool skip_special) const;
  // Ids to UTF-8 text; each maximal ill-formed subsequence becomes one U+FFFD. Equal to what a StreamDecoder gives in total.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

  struct Tables;

 private:
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

// Bytes in, whole code points out; holds back at most 3 bytes (serving.md 1.7). One object per stream, one thread at a time.
class Utf8Stream {
 public:
  // Appends what is complete now to out.
  void push(std::string_view bytes, std::string& out);
  // End of stream: a held incomplete sequence becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string held_;
};

// Token ids in, text out. Copies the Tokenizer (shared tables). One object per stream, one thread at a time.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, bool skip_special) : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  std::string push(TokenId id);
  std::string push(std::span<const TokenId> ids);
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  Utf8Stream utf8_;
};

// UTF-8 with every maximal ill-formed subsequence replaced by U+FFFD.
std::string utf8_lossy(std::string_view bytes);

}  // namespace dsf::tokenizer
