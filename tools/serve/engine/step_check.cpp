#include "tools/serve/engine/step_check.h"

#include <algorithm>
#include <set>

namespace dsf::serve {

Result<void> check_step(std::span<const StepItem> items, const EngineLimits& limits, int64_t vocab_size,
                        const std::function<std::optional<int64_t>(SessionId)>& length_of) {
  int64_t total = 0;
  std::set<SessionId> seen;
  for (const StepItem& item : items) {
    const std::string subject = "session " + std::to_string(item.session);
    const std::optional<int64_t> length = length_of(item.session);
    if (!length) return fail(Code::kUsage, subject, "is not open");
    if (!seen.insert(item.session).second) return fail(Code::kUsage, subject, "stands twice in one step");
    if (item.tokens.empty()) return fail(Code::kUsage, subject, "has no tokens in this step");
    if (std::ssize(item.tokens) > limits.max_model_len - *length)
      return fail(Code::kUsage, subject, "would pass the model length of " + std::to_string(limits.max_model_len),
                  "shorten the prompt or the reply");
    const auto outside =
        std::find_if(item.tokens.begin(), item.tokens.end(), [&](int32_t t) { return t < 0 || t >= vocab_size; });
    if (outside != item.tokens.end())
      return fail(Code::kUsage, subject, "token id " + std::to_string(*outside) + " is outside the vocabulary");
    if (item.choose != nullptr && (item.n_choose < 1 || item.n_choose > std::ssize(item.tokens)))
      return fail(Code::kUsage, subject,
                  "wants " + std::to_string(item.n_choose) + " tokens after " + std::to_string(item.tokens.size()));
    total += std::ssize(item.tokens);
  }
  if (total > limits.max_step_tokens)
    return fail(Code::kUsage, "step",
                std::to_string(total) + " tokens, at most " + std::to_string(limits.max_step_tokens) + " fit");
  return {};
}

}  // namespace dsf::serve
