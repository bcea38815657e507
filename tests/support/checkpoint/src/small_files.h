#pragma once
// The small files that both forms of the made checkpoint share.
#include <filesystem>

#include "dsf/base/result.h"

namespace dsf::made_checkpoint {

// tokenizer.json, tokenizer_config.json and generation_config.json.
Result<void> write_small_files(const std::filesystem::path& dir);

}  // namespace dsf::made_checkpoint
