#pragma once
// Lockstep: one engine per rank, all driven by rank 0's scheduler.
//
// The Leader is the Engine that rank 0 serves with: it tells every call to the other ranks, then makes it on rank 0's
// own engine, whose step meets theirs in the collectives. follow() is what the other ranks do: hear a call, make it.
// Engines are deterministic, so sessions get the same ids everywhere; the Leader sends its id along and a rank that has
// another one fails. Errors of the caller (kUsage, kBusy) happen alike on every rank and change nothing; any other
// error of one rank ends the group. Source: cluster.md 1.1 (broadcast_plan), serving.md 8.
#include <memory>

#include "dsf/comm/collective.h"
#include "tools/serve/engine/engine.h"

namespace dsf::serve {

struct LockstepOptions {
  int64_t step_timeout_us = 20'000'000;  // of a wait for another rank inside a step
};

class Leader final : public Engine {
 public:
  // comm: of rank 0, borrowed; own must use it too.
  Leader(std::unique_ptr<Engine> own, comm::Communicator& comm, LockstepOptions options = {});
  ~Leader() override;  // tells the others to stop

  const model::Config& config() const override { return own_->config(); }
  const EngineLimits& limits() const override { return own_->limits(); }
  Result<SessionId> open() override;
  void close(SessionId session) override;
  int64_t length(SessionId session) const override { return own_->length(session); }
  Result<StepOutput> step(std::span<const StepItem> items) override;
  std::vector<std::pair<std::string, std::string>> identity() const override;

 private:
  std::unique_ptr<Engine> own_;
  comm::Communicator& comm_;
  const LockstepOptions options_;
  uint64_t steps_ = 0;
};

// Until rank 0 stops. Errors: those of the engine and of the communicator, which is aborted then.
Result<void> follow(Engine& engine, comm::Communicator& comm, LockstepOptions options = {});

}  // namespace dsf::serve
