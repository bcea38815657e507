#pragma once
// Runs a calibration text through the CPU engine.
#include <cstdint>
#include <span>

#include "dsf/base/result.h"
#include "tools/serve/engine/cpu_engine.h"

namespace dsf::quantize {

// Feeds ids to the engine: a session from every BOS token on (and one before the first), cut where the engine's length
// ends. With a drafter, a draft is asked for every few tokens, so that its blocks see what they see in service. Logits
// of every token are computed. Results for the observer are the same for any number of threads of the engine. Errors:
// those of the engine; kUsage for no ids at all.
Result<void> run_text(serve::CpuEngine& engine, std::span<const int32_t> ids);

}  // namespace dsf::quantize
