#include "added_tokens.h"

namespace dsf::tokenizer {

void AddedTokenMatcher::add(std::string_view content, int32_t id) {
  size_t at = 0;
  for (const char c : content) {
    const auto [it, fresh] = nodes_[at].children.try_emplace(c, nodes_.size());
    at = it->second;
    if (fresh) nodes_.emplace_back();
  }
  nodes_[at].id = id;
  if (!content.empty()) starts_[static_cast<uint8_t>(content[0])] = true;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    Match best{begin, 0, -1};
    size_t at = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto child = nodes_[at].children.find(text[i]);
      if (child == nodes_[at].children.end()) break;
      at = child->second;
      if (nodes_[at].id >= 0) best = {begin, i + 1 - begin, nodes_[at].id};
    }
    if (best.id >= 0) return best;
  }
  return {text.size(), 0, -1};
}

}  // namespace dsf::tokenizer
