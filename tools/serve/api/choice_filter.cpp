#include "tools/serve/api/choice_filter.h"

#include <algorithm>

namespace dsf::serve {

bool ChoiceFilter::allowed(std::vector<int32_t>& out) {
  out.clear();
  if (left_.empty()) return false;
  const auto limit = static_cast<int32_t>(std::min<int64_t>(vocab_size_, tokenizer_.id_limit()));
  for (int32_t id = 0; id < limit; ++id) {
    const std::string_view bytes = tokenizer_.bytes(id);
    if (bytes.empty() || tokenizer_.is_special(id)) continue;
    const bool fits =
        std::any_of(left_.begin(), left_.end(), [&](const std::string& text) { return text.starts_with(bytes); });
    if (fits) out.push_back(id);
  }
  return true;
}

void ChoiceFilter::commit(int32_t id) {
  const std::string_view bytes = tokenizer_.bytes(id);
  std::erase_if(left_, [&](const std::string& text) { return !text.starts_with(bytes); });
  for (std::string& text : left_) text.erase(0, bytes.size());
  if (std::any_of(left_.begin(), left_.end(), [](const std::string& text) { return text.empty(); })) left_.clear();
}

}  // namespace dsf::serve
