#pragma once
// The one thread that drives the engine: takes requests from any thread, runs the scheduler, sends tokens back through
// Streams.
//
// Owns the Engine. Any thread may call every method. Ends by drain() and stop(), or by the destructor, which ends what
// still runs. After an error of the engine nothing runs any more: state() is kFailed and submit() refuses, so that no
// half-dead server goes on answering.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/serve/scheduler/scheduler.h"

namespace dsf::serve {

struct EngineLoopOptions {
  int max_running = 8;
  int max_queue = 64;  // requests beyond max_running that may wait
  int64_t prefill_chunk = 512;
  size_t stream_capacity = 1024;  // tokens a slow client may leave unread before its request pauses
  int64_t speculative = 0;        // most drafts a request verifies in one step; 0: none
};

class EngineLoop {
 public:
  enum class State { kServing, kDraining, kFailed };

  EngineLoop(std::unique_ptr<Engine> engine, EngineLoopOptions options);
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Errors (Error::cls): "queue_full", "draining", "failed".
  Result<std::shared_ptr<Stream>> submit(GenerationRequest request);
  void drain();                        // accept nothing more; what runs or waits goes on
  bool wait_idle(int64_t timeout_us);  // true once nothing runs or waits
  void stop();                         // ends everything with kDrained, joins

  State state() const;
  Error failure() const;  // of kFailed
  SchedulerCounters counters() const;
  // What never changes: read these only.
  const model::Config& config() const { return engine_->config(); }
  const EngineLimits& limits() const { return engine_->limits(); }
  std::vector<std::pair<std::string, std::string>> identity() const { return identity_; }

 private:
  struct Incoming {
    GenerationRequest request;
    std::shared_ptr<Stream> stream;
  };
  // Shared with the Streams, which may outlive the loop.
  struct Waker {
    std::mutex mutex;
    std::condition_variable changed;
    bool signalled = false;
    void wake();
  };

  void run();
  bool take_incoming();
  void publish();
  void give_up(const Error& error);

  std::unique_ptr<Engine> engine_;
  const EngineLoopOptions options_;
  const std::vector<std::pair<std::string, std::string>> identity_;
  Scheduler scheduler_;  // the loop's thread only
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();

  mutable std::mutex mutex_;  // guards everything below; never held while the engine runs
  std::condition_variable idle_;
  std::vector<Incoming> incoming_;
  State state_ = State::kServing;
  bool stopping_ = false;
  Error failure_;
  SchedulerCounters counters_;
  std::jthread thread_;
};

}  // namespace dsf::serve
