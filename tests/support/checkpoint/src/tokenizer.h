#pragma once
// The made tokenizer: what config and token map need to know of it.
#include "dsf/engram/token_map.h"
#include "dsf/tokenizer/tokenizer.h"

namespace dsf::made_checkpoint {

inline constexpr int kVocabSize =
    768;  // three ranks' worth of 256 rows: not a power of two, whole 128-blocks on two ranks

const tokenizer::Tokenizer& made_tokenizer();
engram::TokenMap made_token_map();

}  // namespace dsf::made_checkpoint
