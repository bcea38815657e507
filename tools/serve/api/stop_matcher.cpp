#include "tools/serve/api/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace dsf::serve {

std::string StopMatcher::push(std::string_view text) {
  if (matched_ != nullptr) return {};
  held_ += text;
  // The match that is complete first; of those that end together, the longest.
  size_t start = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop.size();
    if (matched_ == nullptr || stop_end < end || (stop_end == end && at < start)) {
      matched_ = &stop;
      start = at;
      end = stop_end;
    }
  }
  std::string out;
  if (matched_ != nullptr) {
    out = held_.substr(0, include_ ? end : start);
    held_.clear();
    return out;
  }
  const size_t keep = held_back();
  out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

// Length of the longest end of the text that may be the beginning of a stop string.
size_t StopMatcher::held_back() const {
  size_t most = 0;
  const std::string_view text = held_;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > most; --n) {
      if (text.substr(text.size() - n) == std::string_view(stop).substr(0, n)) {
        most = n;
        break;
      }
    }
  }
  return most;
}

}  // namespace dsf::serve
