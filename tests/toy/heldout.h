#pragma once
// Held-out questions of the toy model as token ids: rendered and tokenised by the code that serves requests.
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/tokenizer/prompt.h"

namespace dsf::toy {

struct Conversation {
  std::vector<int32_t> ids;  // prompt and expected answer
  int64_t answer_begin = 0;  // ids from here on are the answer, its end token included
};

// Every `stride`-th case of heldout.jsonl. Errors: kContent, kMissing; kUsage where a case does not render.
Result<std::vector<Conversation>> load_heldout(const std::filesystem::path& heldout_jsonl,
                                               const tokenizer::Tokenizer& tokenizer, int64_t stride);

}  // namespace dsf::toy
