#pragma once
// The life of the server process: load, canary, ready, serve, drain. Takes a plan, needs no argv.
#include "tools/serve/options.h"

namespace dsf::serve {

// Returns 0 after a drain that a signal asked for (the caller then lets the signal end the process), 70 when the engine
// failed. Errors: those of loading and of listening.
Result<int> run_server(ServePlan plan);

}  // namespace dsf::serve
