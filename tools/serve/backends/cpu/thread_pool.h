#pragma once
// ThreadPool: the CPU backend's workers. One owner calls for_range(); the workers and the caller share its range.
//
// The pieces of a range are independent by contract, so results do not depend on how many threads there are. Calls must
// not nest.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dsf::serve::cpu {

class ThreadPool {
 public:
  // threads: workers including the caller; 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on pieces that cover [0, n) once, at least min_piece long except the last; returns when all
  // are done.
  void for_range(int64_t n, int64_t min_piece, const std::function<void(int64_t, int64_t)>& body);

 private:
  void work(int index);

  std::mutex mutex_;
  std::condition_variable start_, done_;
  // Guarded by mutex_: the current call. generation_ counts calls, so that a worker runs its piece once.
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t n_ = 0, piece_ = 0;
  uint64_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace dsf::serve::cpu
