#include "tools/serve/scheduler/engine_loop.h"

#include <pthread.h>

#include <chrono>

#include "dsf/base/time.h"

namespace dsf::serve {

void EngineLoop::Waker::wake() {
  const std::lock_guard lock(mutex);
  signalled = true;
  changed.notify_one();
}

EngineLoop::EngineLoop(std::unique_ptr<Engine> engine, EngineLoopOptions options)
    : engine_(std::move(engine)),
      options_(options),
      identity_(engine_->identity()),
      scheduler_(*engine_, {options.max_running, options.prefill_chunk, monotonic_ns, [this] { publish(); },
                            options.speculative}) {
  thread_ = std::jthread([this] {
    pthread_setname_np(pthread_self(), "engine-loop");
    run();
  });
}

EngineLoop::~EngineLoop() { stop(); }

Result<std::shared_ptr<Stream>> EngineLoop::submit(GenerationRequest request) {
  auto stream = std::make_shared<Stream>(options_.stream_capacity, [waker = waker_] { waker->wake(); });
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kFailed)
      return fail(Code::kBug, "engine", "the engine has failed: " + failure_.what, {}, "failed");
    if (state_ == State::kDraining || stopping_)
      return fail(Code::kBusy, "server", "the server is shutting down", {}, "draining");
    const auto in_system = static_cast<int64_t>(incoming_.size()) + counters_.running + counters_.waiting;
    if (in_system >= options_.max_running + options_.max_queue)
      return fail(Code::kBusy, "server", "too many requests are waiting", {}, "queue_full");
    incoming_.push_back({std::move(request), stream});
  }
  waker_->wake();
  return stream;
}

void EngineLoop::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kServing) state_ = State::kDraining;
}

bool EngineLoop::wait_idle(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::microseconds(timeout_us),
                        [&] { return incoming_.empty() && counters_.running + counters_.waiting == 0; });
}

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  waker_->wake();
  if (thread_.joinable()) thread_.join();
}

EngineLoop::State EngineLoop::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Error EngineLoop::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

SchedulerCounters EngineLoop::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

// Moves new requests to the scheduler; false when the loop should end.
bool EngineLoop::take_incoming() {
  const std::lock_guard lock(mutex_);
  for (Incoming& in : incoming_) scheduler_.add(std::move(in.request), std::move(in.stream));
  incoming_.clear();
  counters_ = scheduler_.counters();
  return !stopping_;
}

void EngineLoop::publish() {
  const std::lock_guard lock(mutex_);
  counters_ = scheduler_.counters();
  if (incoming_.empty() && scheduler_.idle()) idle_.notify_all();
}

// The state is set before anybody hears of an end: who sees a failed request sees a failed server.
void EngineLoop::give_up(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kFailed;
    failure_ = error;
  }
  take_incoming();
  scheduler_.end_all(EndReason::kFailed, error);
}

void EngineLoop::run() {
  bool ran = true;
  while (take_incoming()) {
    const auto stepped = scheduler_.step();
    if (!stepped) {
      give_up(stepped.error());
      break;
    }
    publish();
    ran = *stepped;
    if (ran) continue;
    // Nothing to run: a new request, a cancellation or a reader with room wakes us; deadlines are looked at now and
    // then.
    std::unique_lock lock(waker_->mutex);
    waker_->changed.wait_for(lock, std::chrono::milliseconds(scheduler_.idle() ? 1000 : 20),
                             [&] { return waker_->signalled; });
    waker_->signalled = false;
  }
  take_incoming();
  scheduler_.end_all(EndReason::kDrained);
  publish();
}

}  // namespace dsf::serve
