#pragma once
// Which request runs what in the next step of the engine: admission, chunked prefill between decode rounds, sampling,
// drafts, and every way to end.
//
// Pure logic on one thread (the engine loop's): no clock but the one it is given, no waiting, no I/O. It borrows the
// Engine. Requests wait in order of arrival and are admitted while there is a session for them. In each step every
// running request that owes one token gets it first; what is left of the token budget goes to prompts, those first that
// have waited longest since their last turn, so neither a long prompt nor seven other replies can hold a request up for
// more than a few steps. Source: serving.md 4.2, 5, 7.2, 7.6.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tools/serve/engine/engine.h"
#include "tools/serve/scheduler/sampler.h"
#include "tools/serve/scheduler/stream.h"

namespace dsf::serve {

// Tokens that the server decides instead of the model: once `trigger` has been generated (at once when -1), `forced` is
// appended as if generated, then `filter` (may be null) limits the choice as long as it says so.
struct Steering {
  bool active = false;
  int32_t trigger = -1;
  std::vector<int32_t> forced;
  std::unique_ptr<TokenFilter> filter;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // not empty, ids inside the vocabulary
  SamplingParams sampling;
  int64_t max_tokens = 1;  // prompt + max_tokens within max_model_len: the caller has checked
  int64_t min_tokens = 0;  // EOS and stop ids are masked before
  bool ignore_eos = false;
  bool prompt_logprobs = false;  // Choice of every prompt token but the first, with sampling.top_logprobs alternatives
  std::vector<int32_t> stop_ids;
  Steering steering;
  int64_t queue_deadline_ns = 0;  // monotonic; not admitted by then: kTimedOut. 0: none
  int64_t deadline_ns = 0;        // not finished by then: kTimedOut. 0: none
};

struct SchedulerOptions {
  int max_running = 8;
  int64_t prefill_chunk = 512;  // most prompt tokens of one request in one step
  std::function<int64_t()> now_ns;
  // Called when requests have ended: they have left the counters, and their consumers have not heard of it yet. So
  // whoever reads an end and then asks for the counters does not find that request among the running ones.
  std::function<void()> before_ends;
  int64_t speculative = 0;  // most drafts a request verifies in one step; 0: none
};

struct SchedulerCounters {
  int64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;
  std::vector<int64_t> drafted_at,
      accepted_at;  // the same by the draft's place in its step, from 0; [most drafts seen]
  int64_t running = 0, waiting = 0;
  int64_t held_tokens = 0;          // positions in the sessions of running requests
  int64_t oldest_submitted_ns = 0;  // of requests in the system; 0 when there are none
  std::map<EndReason, int64_t> ended;
};

class Scheduler {
 public:
  Scheduler(Engine& engine, SchedulerOptions options) : engine_(engine), options_(std::move(options)) {}

  void add(GenerationRequest request, std::shared_ptr<Stream> stream);
  // One round. False when there was nothing to run. Errors: those of the engine; nothing can be run after that, and
  // the caller ends what is left with end_all().
  Result<bool> step();
  void end_all(EndReason reason, const Error& error = {});
  bool idle() const { return waiting_.empty() && running_.empty(); }
  SchedulerCounters counters() const;

 private:
  struct Job {
    GenerationRequest request;
    std::shared_ptr<Stream> stream;
    Sampler sampler;
    Timing timing;
    SessionId session = -1;
    std::vector<int32_t> pending;  // to be appended to the session, from next on
    size_t next = 0;
    size_t take = 0;   // of this step
    int64_t held = 0;  // tokens in the session
    int64_t generated = 0;
    bool steering = false;        // the filter is in force
    bool engine_chooses = false;  // in this step, by `choice`
    ChoiceParams choice;
    int64_t drafts = 0;  // at the end of pending, in this step
    bool ended = false;
    Job(GenerationRequest r, std::shared_ptr<Stream> s)
        : request(std::move(r)), stream(std::move(s)), sampler(request.sampling, request.prompt) {}
    size_t owed() const { return pending.size() - next; }
  };
  using Jobs = std::vector<std::unique_ptr<Job>>;

  void drop_late(int64_t now);
  void admit(int64_t now);
  Result<void> plan();
  Result<void> consume(const StepOutput& output);
  void after_prompt_rows(Job& job, const float* rows, int64_t n_rows, int64_t first);
  bool engine_may_choose(const Job& job) const;
  void sample(Job& job, std::span<const float> row);
  Result<void> propose(Job& job, int64_t budget);
  Result<void> take_choices(Job& job, std::span<const int32_t> chosen);
  void append(Job& job, Choice choice);
  void accept(Job& job, Choice choice);
  void start_steering(Job& job);
  // last: the reply's last token, when it is that which ends it.
  void end(Job& job, EndReason reason, int32_t stop_token = -1, const Error& error = {},
           std::optional<Choice> last = std::nullopt);
  void deliver_ends();

  Engine& engine_;
  SchedulerOptions options_;
  std::deque<std::unique_ptr<Job>> waiting_;
  Jobs running_;  // those that have waited longest since their last turn come first
  std::vector<int32_t> allowed_;
  struct Ending {
    std::shared_ptr<Stream> stream;
    std::optional<Choice> last;
    End end;
  };
  std::vector<Ending> ends_;  // of requests whose consumers have not heard of it yet
  SchedulerCounters counters_;
};

}  // namespace dsf::serve
