#pragma once
// The engine as the scheduler sees it: sessions with their caches, and steps that append tokens to them and give logits
// back.
//
// One thread (the engine loop) calls open/step/close; nothing else touches the backend. Logits returned by step() are
// borrowed until the next step(). A row may ask for its next token instead of logits (choose): then the engine chooses
// by engine/choice.h's rules, which are the scheduler's sampler's too, so it does not matter to the reply who chooses.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"
#include "tools/serve/engine/choice.h"

namespace dsf::serve {

using SessionId = int32_t;

struct EngineLimits {
  int64_t max_model_len = 0;    // positions a session may hold
  int max_sessions = 8;         // open at once
  int64_t max_step_tokens = 0;  // sum of tokens over the items of one step (prefill chunk size)
};

// Append tokens (a prefill chunk, or one decode token) to a session, in order, after what it already holds.
struct StepItem {
  SessionId session = -1;
  std::span<const int32_t> tokens;
  bool want_all_logits = false;  // logits of every token; otherwise of the last token only, and only when want_logits
  bool want_logits = true;
  // The tokens after each of the last n_choose, chosen by the engine; no logits then, whatever the two above say.
  // choose->position is that of the first of them. Borrowed for the call.
  const ChoiceParams* choose = nullptr;
  int64_t n_choose = 1;
};

// What a drafter proposes for the positions after a token that was chosen but not yet appended.
struct DraftOutput {
  std::vector<int32_t> ids;       // [dspark_block_size]
  std::vector<float> confidence;  // [dspark_block_size] raw: a sigmoid of it estimates that the draft is accepted
  std::vector<float> logits;      // [dspark_block_size, V], or empty where the engine keeps them to itself
};

struct StepOutput {
  // [n_rows, vocab_size] f32, row-major; rows in the order of the items, each item's rows in the order of its tokens.
  std::span<const float> logits;
  int64_t n_rows = 0;
  std::vector<int32_t> chosen = {};  // in the order of items and tokens; -1: the logits are not finite
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
  // All items run or none: an item that would pass max_model_len, an id outside the vocabulary or an unknown session is
  // kUsage and leaves every session as it was.
  virtual Result<StepOutput> step(std::span<const StepItem> items) = 0;
  // Whether StepItem::choose may be used.
  virtual bool chooses() const { return false; }
  // Whether draft() may be called.
  virtual bool has_drafter() const { return false; }
  // Greedy drafts for the positions after `pending`; the session stays as it is. Errors: kUsage for an unknown or empty
  // session, an id outside the vocabulary, or without a drafter.
  virtual Result<DraftOutput> draft(SessionId /*session*/, int32_t /*pending*/) {
    return fail(Code::kUsage, "engine", "has no drafter");
  }
  // Forgets the last tokens of a session, at most max_step_tokens of them: rejected drafts. kUsage when length is out
  // of range.
  // An engine with a drafter has it.
  virtual Result<void> truncate(SessionId /*session*/, int64_t /*length*/) {
    return fail(Code::kUsage, "engine", "cannot cut a session back");
  }
  // name -> value pairs that identify what is loaded (checkpoint digest, packs, backend): reported by /v1/models and
  // records.
  virtual std::vector<std::pair<std::string, std::string>> identity() const = 0;
};

}  // namespace dsf::serve
