#pragma once
// Which bytes a checkpoint folder holds, in a few digests that other tools can write into their records.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/manifest/record.h"

namespace dsf::serve {

// config_sha256 and tokenizer_sha256; with a record of dsf-fetch that still fits the files: repo, revision; and
// checkpoint_sha256, the SHA-256 of the lines "<sha256>  <path>\n" of config, tokenizer, index and every shard, sorted
// by path. That one comes from the record, or from hashing when the checkpoint is smaller than 1 GiB; otherwise it is
// left out, never guessed. Errors: kLocal, kMissing.
Result<std::vector<std::pair<std::string, std::string>>> checkpoint_identity(const std::filesystem::path& model_dir);

// The files of a checkpoint folder that decide what the model computes (the same, sorted by path), with their digests.
// A file that no fitting record of dsf-fetch names is hashed when such files come to less than hash_below bytes
// together, or when it is JSON; otherwise its sha256 is empty.
Result<std::vector<manifest::Input>> checkpoint_inputs(const std::filesystem::path& model_dir, uint64_t hash_below);

// Loading looks at headers, shapes and scales; damaged weights load like any others. A sentence for the log when there
// are shards that neither dsf-verify nor dsf-fetch has hashed since they last changed; else empty.
std::string unproven_weights(const std::filesystem::path& model_dir);

}  // namespace dsf::serve
