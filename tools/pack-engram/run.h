#pragma once
// dsf-pack-engram without its argv: takes a plan, does the work, prints the result. Main thread.
#include <iosfwd>

#include "tools/pack-engram/options.h"

namespace dsf::pack_engram {

// Exit code; results go to out, one line per wrong file to err. Errors are those that stopped the whole run.
Result<int> run(const Plan& plan, std::ostream& out, std::ostream& err);

}  // namespace dsf::pack_engram
