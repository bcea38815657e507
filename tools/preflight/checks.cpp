#include "tools/preflight/checks.h"

#include <array>

namespace dsf::preflight {
namespace {
constexpr std::array<Check, 12> kChecks{{
    {"config.valid", "config.json parses and its fields fit together", check_config},
    {"shards.open", "index and shards agree, every header is sound", check_shards},
    {"tensors.table", "every tensor the engine loads is there, with its shape and type", check_tensor_table},
    {"tensors.scales", "no block scale is NaN", check_scales},
    {"routers.attach", "every router attaches through the engine's own function", check_router_attach},
    {"routers.image_bias", "the image-router biases are there", check_image_biases},
    {"tokenizer.special", "tokenizer.json has the special tokens, at the ids config.json gives", check_special_tokens},
    {"engram.token_map", "the token map has the size the hash was made for", check_token_map},
    {"engram.rows", "this rank's Engram rows open", check_engram_rows},
    {"engram.content", "the packed rows are those of the packing record or of the tables", check_engram_content},
    {"memory.plan", "weights, caches and workspace fit", check_memory},
    {"disk.free", "the disk has room for logs and sessions", check_disk},
}};
}  // namespace

std::span<const Check> all_checks() { return kChecks; }

void Outcome::add(Finding f) {
  if (status == Status::kOk || (status != Status::kFail && f.status > status)) status = f.status;
  if (findings.size() < kMaxFindings) findings.push_back(std::move(f));
  else ++more;
}

}  // namespace dsf::preflight
