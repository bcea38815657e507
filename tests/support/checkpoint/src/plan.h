#pragma once
// What stands where: the weights in order, and their shards.
#include <string_view>
#include <vector>

#include "dsf/model/weights.h"

namespace dsf::made_checkpoint {

inline constexpr int kBodyShards = 4;  // the Engram shards of the native form follow

// Number of the shard, from 1. Each Engram layer has a shard of its own at the end.
int shard_of(const model::Config& config, std::string_view name);
std::vector<model::Weight> all_weights(const model::Config& config);

}  // namespace dsf::made_checkpoint
