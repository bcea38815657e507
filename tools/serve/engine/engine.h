#pragma once
// The engine as the scheduler sees it: sessions with their caches, and steps that append tokens to them and give logits back.
//
// One thread (the engine loop) calls open/step/close; nothing else touches the backend. Logits returned by step() are borrowed until
// the next step(). An engine never samples: that is the scheduler's sampler, so that the CPU and the GPU share its rules.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"

namespace dsf::serve {

using SessionId = int32_t;

struct EngineLimits {
  int64_t max_model_len = 0;   // positions a session may hold
  int max_sessions = 8;        // open at once
  int64_t max_step_tokens = 0; // sum of tokens over the items of one step (prefill chunk size)
};

// Append tokens (a prefill chunk, or one decode token) to a session, in order, after what it already holds.
struct StepItem {
  SessionId session = -1;
  std::span<const int32_t> tokens;
  bool want_all_logits = false;  // logits of every token; otherwise of the last token only, and only when want_logits
  bool want_logits = true;
};

struct StepOutput {
  // [n_rows, vocab_size] f32, row-major; rows in the order of the items, each item's rows in the order of its tokens.
  std::span<const float> logits;
  int64_t n_rows = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const model::Config& config() const = 0;
  virtual const EngineLimits& limits() const = 0;
  // Errors: kBusy when max_sessions are open.
  virtual Result<SessionId> open() = 0;
  virtual void close(SessionId session) = 0;
  virtual int64_t length(SessionId session) const = 0;  // tokens held
  // All items run or none: an item that would pass max_model_len, an id outside the vocabulary or an unknown session is kUsage and
  // leaves every session as it was.
  virtual Result<StepOutput> step(std::span<const StepItem> items) = 0;
  // name -> value pairs that identify what is loaded (checkpoint digest, packs, backend): reported by /v1/models and records.
  virtual std::vector<std::pair<std::string, std::string>> identity() const = 0;
};

}  // namespace dsf::serve
