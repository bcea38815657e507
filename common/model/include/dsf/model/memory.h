#pragma once
// The memory plan: what one rank needs for weights, caches and workspace, from the configuration and the checkpoint's headers.
//
// Pure arithmetic; any thread. Figures are the engine's formats, counted once each (on unified-memory machines mapping, page cache and
// device are one pool). Engram tables are files and cost no memory. Source: model.md 2, 5, 10; gb10.md 2.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"

namespace dsf::model {

struct StoredTensor {
  std::string name;
  uint64_t bytes = 0, elements = 0;  // as stored
};

enum class Residence {
  kStored,    // weights stay as stored (GPU backends); caches in the reference formats
  kExpanded,  // every weight and cache value is an f32 (CPU backend)
};

struct MemoryRequest {
  Residence residence = Residence::kStored;
  int rank = 0, world_size = 1;
  int64_t max_model_len = 0;     // positions of one session
  int64_t max_sessions = 1;      // open at once, each counted at full length
  int64_t max_step_tokens = 512;
};

struct MemoryPlan {
  uint64_t weights = 0;
  uint64_t cache_per_token = 0, cache_per_session = 0;  // growing and fixed part of one session
  uint64_t caches = 0;                                   // of all sessions
  uint64_t workspace = 0;                                // one step's activations and logits
  uint64_t reserve = 0;                                  // driver context, collectives, graphs
  uint64_t total() const { return weights + caches + workspace + reserve; }
};

// The part of a stored tensor that this rank keeps: whole, or its share of the tensors that the two-rank split cuts.
uint64_t resident_bytes(const StoredTensor& tensor, int rank, int world_size);

// Growing cache bytes per token and session: 890 in the release's reference format.
uint64_t cache_bytes_per_token(const Config& config, Residence residence);

// tensors: everything the checkpoint holds. Errors: kUsage when rank, world size or a length makes no sense.
Result<MemoryPlan> plan_memory(const Config& config, const std::vector<StoredTensor>& tensors, const MemoryRequest& request);

// MemAvailable of this machine, bytes. Errors: kLocal.
Result<uint64_t> available_memory();

}  // namespace dsf::model
