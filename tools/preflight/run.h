#pragma once
// dsf-preflight without its argv: takes a plan, runs the checks, prints the result. Main thread; writes only the
// report.
#include <iosfwd>

#include "tools/preflight/options.h"

namespace dsf::preflight {

// Exit code: 0 ready, 1 not ready, 10 only warnings under --warnings-as-errors. Errors: kMissing when there is no model
// folder, kLocal when the report cannot be written.
Result<int> run(const Plan& plan, std::ostream& out, std::ostream& err);

}  // namespace dsf::preflight
