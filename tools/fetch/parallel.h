#pragma once
// n pieces of work on some threads, each with a Hub of its own; the first error ends the run.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "dsf/hub/hub.h"

namespace dsf::fetch {

// work(hub, i) for i in [0, n), in order of i as threads become free. Runs on the calling thread too.
template <class Work>
Result<void> for_each_with_hub(size_t n, int jobs, const std::shared_ptr<hub::Shared>& shared, const Work& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> error;
  const auto loop = [&] {
    hub::Hub hub(shared);
    for (size_t i = next++; i < n; i = next++) {
      Result<void> done = work(hub, i);
      if (done) continue;
      next = n;
      const std::lock_guard lock(mutex);
      if (!error) error = done.error();
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = std::min<size_t>(n, static_cast<size_t>(std::max(jobs, 1)));
  for (size_t i = 1; i < wanted; ++i) threads.emplace_back(loop);
  loop();
  for (std::thread& t : threads) t.join();
  return error ? Result<void>(fail(*error)) : Result<void>();
}

}  // namespace dsf::fetch
