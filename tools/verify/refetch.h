#pragma once
// Ranges of one file of the Hub into a local file, over several connections. Source: hub.md 3.8, 3.10.
#include <cstdint>
#include <memory>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/io/file.h"

namespace dsf::verify {

struct Range {
  uint64_t begin = 0, end = 0;
};

// Every range in place, each byte written once it has arrived; transient failures are tried again as the Hub's policy
// says. Errors: those of the Hub, kLocal.
Result<void> fetch_ranges(const std::shared_ptr<hub::Shared>& shared, hub::FileSource& source,
                          const std::vector<Range>& ranges, int connections, const io::Fd& out);

}  // namespace dsf::verify
