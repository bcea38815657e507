#include <algorithm>

#include "dsf/model/engram.h"
#include "dsf/tokenizer/tokenizer.h"

namespace dsf::model {
namespace {

// Ids without a token (placeholders whose spelling a tokenizer.json leaves out, up to the vocabulary's end) get keys of their own.
engram::TokenMap map_of(const tokenizer::Tokenizer& t, int64_t vocab_size) {
  return engram::TokenMap::build(std::max<int64_t>(t.id_limit(), vocab_size), [&](int64_t id) {
    const auto token = static_cast<tokenizer::TokenId>(id);
    return engram::TokenSpelling{std::string(t.token(token)), tokenizer::utf8_lossy(t.bytes(token))};
  });
}

}  // namespace

Result<engram::TokenMap> load_token_map(const std::filesystem::path& model_dir, const Config& config) {
  const auto file = model_dir / "tokenizer.json", list = model_dir / "engram_token_map.json";
  std::error_code ec;
  const bool has_tokenizer = std::filesystem::exists(file, ec);
  if (!has_tokenizer && !std::filesystem::exists(list, ec))
    return fail(Code::kMissing, model_dir.string(), "has neither tokenizer.json nor engram_token_map.json", "fetch tokenizer.json of this checkpoint", "missing");
  if (!has_tokenizer) {
    DSF_TRY(engram::TokenMap map, engram::TokenMap::load(list));
    DSF_OK(map.expect(config.vocab_size, config.engram_compressed_vocab_size, list.string()));
    return map;
  }
  DSF_TRY(const tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::load(file));
  engram::TokenMap map = map_of(tokenizer, config.vocab_size);
  DSF_OK(map.expect(config.vocab_size, config.engram_compressed_vocab_size, file.string()));
  return map;
}

}  // namespace dsf::model
