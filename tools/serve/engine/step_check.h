#pragma once
// The rules of Engine::step that every engine shares: known sessions, once each, tokens inside the vocabulary and the
// limits.
#include <functional>
#include <optional>
#include <span>

#include "tools/serve/engine/engine.h"

namespace dsf::serve {

// length_of: the tokens a session holds, or nothing when it is not open. Errors: kUsage, naming the session.
Result<void> check_step(std::span<const StepItem> items, const EngineLimits& limits, int64_t vocab_size,
                        const std::function<std::optional<int64_t>(SessionId)>& length_of);

}  // namespace dsf::serve
