#pragma once
// The two forms of a preflight result: a record, and lines for people.
#include <iosfwd>
#include <vector>

#include "dsf/manifest/record.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {

const char* status_name(Status status);
json::Value item_of(const Outcome& outcome);
// One line per finding; then how many checks failed, when it is more than one.
void print_findings(const std::vector<Outcome>& outcomes, bool quiet, std::ostream& err);
void print_table(const std::vector<Outcome>& outcomes, std::ostream& out);
manifest::Record to_record(const Context& context, const std::vector<Outcome>& outcomes);
// Problems to err, one line each; the table of checks and the verdict to out.
void print(const Context& context, const std::vector<Outcome>& outcomes, std::ostream& out, std::ostream& err);

}  // namespace dsf::preflight
