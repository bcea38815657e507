#pragma once
// dsf-verify without its argv: takes a plan, reads the folder, prints the result. Main thread.
#include <iosfwd>

#include "tools/verify/options.h"
#include "tools/verify/report.h"

namespace dsf::verify {

// Reads and judges, writes nothing. Errors: what stops the whole run (folder absent, evidence unusable).
Result<Report> examine(const Plan& plan);
// examine(), outputs, exit code.
Result<int> run(const Plan& plan, std::ostream& out, std::ostream& err);

}  // namespace dsf::verify
