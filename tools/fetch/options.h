#pragma once
// The command line of dsf-fetch. run() is main without the process: tests call it.
#include "dsf/base/result.h"
#include "dsf/cli/app.h"

namespace dsf::fetch {
Result<int> run(cli::Args args);
}
