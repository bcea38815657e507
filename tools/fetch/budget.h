#pragma once
// How many connections may transfer at a time: halved when many of them fail, grown again by one after each quiet
// minute. Times are monotonic nanoseconds given by the caller; the caller's mutex guards it. Source: hub.md 3.8.
#include <cstdint>
#include <deque>

namespace dsf::fetch {

class Budget {
 public:
  explicit Budget(int most) : most_(most), allowed_(most) {}
  // Up to now; grows the budget when its time has come.
  int allowed(int64_t now_ns);
  // A connection broke, was refused for load, or stalled. True when the budget shrank.
  bool failed(int64_t now_ns);

 private:
  static constexpr int64_t kWindowNs = 30'000'000'000, kQuietNs = 60'000'000'000;
  int most_, allowed_;
  std::deque<int64_t> failures_;  // within the window, since the last change
  int64_t quiet_since_ns_ = 0;
};

}  // namespace dsf::fetch
