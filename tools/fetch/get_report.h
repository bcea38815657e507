#pragma once
// What `get` says and leaves behind: the table of a dry run, the event stream, the record, the exit code. Source:
// hub.md 3.14, 3.15, 4.4.
#include <string>
#include <vector>

#include "dsf/cli/log.h"
#include "tools/fetch/engine.h"
#include "tools/fetch/events.h"
#include "tools/fetch/existing.h"

namespace dsf::fetch {

void print_plan(const Planned& p, const Found& found, Events& events);

// Events and the progress line of a running download; borrows all three.
Observer observe(const Found& found, Events& events, cli::Progress& progress);

// The record names everything that is there and verified: what this run brought, what it found, and what earlier runs
// of the same revision brought beside it.
Result<void> write_record(const Planned& p, const Target& target, const Found& found,
                          const std::vector<FileResult>& results, const Stamps& stamps, const std::string& started,
                          bool tls_verified);

// Every error on a line of its own; the process ends with the worst one.
Result<int> report_failures(const std::vector<FileResult>& results, const Plan& plan);

void say_done(const Planned& p, const Found& found, uint64_t network_bytes, Events& events, bool quiet);

}  // namespace dsf::fetch
