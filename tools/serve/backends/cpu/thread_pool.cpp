#include "tools/serve/backends/cpu/thread_pool.h"

#include <algorithm>

namespace dsf::serve::cpu {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
}

void ThreadPool::for_range(int64_t n, int64_t min_piece, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t piece = std::max<int64_t>((n + threads() - 1) / threads(), min_piece);
  if (piece >= n) {  // one piece: not worth waking anybody
    if (n > 0) body(0, n);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    n_ = n;
    piece_ = piece;
    running_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  start_.notify_all();
  body(0, piece);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
}

void ThreadPool::work(int index) {
  uint64_t seen = 0;
  while (true) {
    std::unique_lock lock(mutex_);
    start_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    const int64_t begin = std::min(index * piece_, n_), end = std::min(begin + piece_, n_);
    const auto* body = body_;
    lock.unlock();
    if (begin < end) (*body)(begin, end);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace dsf::serve::cpu
