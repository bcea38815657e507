#pragma once
// The bounded queue between the engine loop and the thread that answers one request.
//
// The engine loop is the only producer, the request's thread the only consumer; both hold the Stream by shared_ptr,
// because either may end first. A full Stream pauses its request instead of blocking the loop. Lock order: a Stream's
// mutex is taken last.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "tools/serve/scheduler/sampler.h"

namespace dsf::serve {

enum class EndReason {
  kEos,        // the end-of-turn token (counted, not text)
  kStopToken,  // one of the request's stop ids
  kLength,     // max_tokens or the context is full
  kCancelled,  // by the consumer
  kTimedOut,   // a deadline passed
  kDrained,    // the server is going down
  kFailed,     // engine or logits; End::error says which
};

struct Timing {  // monotonic ns; 0: did not happen
  int64_t submitted_ns = 0, admitted_ns = 0, first_token_ns = 0, finished_ns = 0;
};

struct End {
  EndReason reason = EndReason::kEos;
  int32_t stop_token = -1;  // of kStopToken
  Error error;              // of kFailed
  Timing timing;
};

// What has arrived since the last wait(). Order within a request: admitted, prompt, tokens, end.
struct Batch {
  bool admitted = false;
  std::vector<Choice> prompt;  // with prompt_logprobs: one per prompt token but the first
  std::vector<Choice> tokens;  // the reply, EOS and stop tokens included
  std::optional<End> end;
  bool empty() const { return !admitted && prompt.empty() && tokens.empty() && !end; }
};

class Stream {
 public:
  // wake is called, without locks of this class held, when the engine loop should look again.
  Stream(size_t capacity, std::function<void()> wake) : capacity_(capacity), wake_(std::move(wake)) {}

  // Consumer. Waits until something is there, or timeout_us passes (then the batch is empty).
  Batch wait(int64_t timeout_us);
  void cancel();  // the request ends within one round; nothing more needs to be read

  // Producer.
  bool has_room() const;
  bool cancelled() const { return cancelled_.load(); }
  void admit();
  void push_prompt(std::vector<Choice> choices);
  void push(Choice choice);
  // With the reply's last token when there is one: the two arrive together.
  void finish(End end, std::optional<Choice> last = std::nullopt);

 private:
  const size_t capacity_;
  const std::function<void()> wake_;
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Batch batch_;  // guarded by mutex_
};

}  // namespace dsf::serve
