#include "tools/fetch/budget.h"

#include <algorithm>

namespace dsf::fetch {

int Budget::allowed(int64_t now_ns) {
  if (allowed_ < most_ && now_ns - quiet_since_ns_ >= kQuietNs) {
    ++allowed_;
    quiet_since_ns_ = now_ns;
  }
  return allowed_;
}

bool Budget::failed(int64_t now_ns) {
  quiet_since_ns_ = now_ns;
  while (!failures_.empty() && now_ns - failures_.front() > kWindowNs) failures_.pop_front();
  failures_.push_back(now_ns);
  if (static_cast<int>(failures_.size()) * 2 <= allowed_ || allowed_ == 1) return false;
  allowed_ = std::max(1, allowed_ / 2);
  failures_.clear();
  return true;
}

}  // namespace dsf::fetch
