#pragma once
// From a model folder to the Engram library's inputs: the one place where configuration, tokenizer and token map meet.
// Pure functions of files and values, any thread. Source: engram.md sections 1 and 2.
#include <filesystem>

#include "dsf/base/result.h"
#include "dsf/engram/layout.h"
#include "dsf/engram/token_map.h"
#include "dsf/model/config.h"

namespace dsf::model {

engram::Spec engram_spec(const Config& config);

// The token map of a checkpoint folder, checked against the configuration: built from tokenizer.json when the folder has one,
// otherwise read from engram_token_map.json. Errors: kMissing when there is neither, kContent when it does not fit the configuration.
Result<engram::TokenMap> load_token_map(const std::filesystem::path& model_dir, const Config& config);

}  // namespace dsf::model
