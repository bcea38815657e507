#pragma once
// The two forms of a preflight result: a record, and lines for people.
#include <iosfwd>
#include <vector>

#include "dsf/manifest/record.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {

const char* status_name(Status status);
manifest::Record to_record(const Context& context, const std::vector<Outcome>& outcomes);
// Problems to err, one line each; the table of checks and the verdict to out.
void print(const Context& context, const std::vector<Outcome>& outcomes, std::ostream& out, std::ostream& err);

}  // namespace dsf::preflight
