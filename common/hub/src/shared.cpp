#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/hub/hub.h"

namespace dsf::hub {

void Shared::close_gate_until(int64_t ns) {
  const std::lock_guard lock(mutex_);
  gate_ns_ = std::max(gate_ns_, ns);
}

bool Shared::gate_closed() {
  const std::lock_guard lock(mutex_);
  return monotonic_ns() < gate_ns_;
}

bool Shared::wait(int64_t wait_us) {
  const int64_t own_ns = monotonic_ns() + wait_us * 1000;
  while (!stopped()) {
    int64_t until = own_ns;
    {
      const std::lock_guard lock(mutex_);
      until = std::max(until, gate_ns_);
    }
    const int64_t left = until - monotonic_ns();
    if (left <= 0) return true;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(left, 50'000'000)));
  }
  return false;
}

// Full jitter: threads that failed together do not come back together.
int64_t Shared::backoff_us(int attempt) const {
  thread_local std::mt19937_64 rng(std::random_device{}());
  const int64_t longest = std::min(retry.cap_us, retry.base_us << std::clamp(attempt, 0, 20));
  return std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(longest, 1))(rng);
}

bool Attempts::again(const Hub::Outcome& outcome, const std::string& url, int status) {
  const RetryPolicy& policy = shared_.retry;
  if (!outcome.retry || (outcome.counts ? ++failures_ >= policy.attempts : ++waits_ > policy.rate_waits)) return false;
  const int64_t wait =
      outcome.wait_us >= 0 ? std::min(outcome.wait_us, policy.rate_cap_us) : shared_.backoff_us(failures_);
  if (!outcome.counts) shared_.close_gate_until(monotonic_ns() + wait * 1000);
  if (shared_.on_retry) shared_.on_retry({url, outcome.error.cls, status, wait});
  stopped_ = !shared_.wait(wait);
  return !stopped_;
}

}  // namespace dsf::hub
