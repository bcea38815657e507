#pragma once
// Which shard a weight stands in.
#include <string_view>

#include "dsf/model/weights.h"

namespace dsf::made_checkpoint {

inline constexpr int kBodyShards = 4;  // the Engram shards of the native form follow

// Number of the shard, from 1. Each Engram layer has a shard of its own at the end.
int shard_of(const model::Config& config, std::string_view name);

}  // namespace dsf::made_checkpoint
