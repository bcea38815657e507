#pragma once
// Several ranks of one model in one process, a thread each: tensor parallel without a network, for tests and for trying
// a split.
#include <functional>
#include <memory>

#include "dsf/comm/collective.h"
#include "tools/serve/engine/engine.h"
#include "tools/serve/engine/lockstep.h"

namespace dsf::serve {

// open: makes the engine of one rank with its communicator; called on the rank's own thread, all ranks at once. The
// engine returned leads; its destructor stops and joins the others. Errors: the first that a rank had.
Result<std::unique_ptr<Engine>> open_local_ranks(
    int world, const std::function<Result<std::unique_ptr<Engine>>(comm::Communicator&)>& open,
    LockstepOptions options = {});

}  // namespace dsf::serve
