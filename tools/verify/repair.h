#pragma once
// dsf-verify repair: fetches damaged pieces again where the pin lists pieces, and whole files where it does not, then
// verifies.
//
// A file is put together beside its place (DIR/.cache/verify/repair/), proven whole, and renamed over the damaged one:
// never half a file, and a second run starts that file again. Source: hub.md 3.16, 5.7.
#include <iosfwd>
#include <memory>

#include "dsf/hub/hub.h"
#include "tools/verify/options.h"

namespace dsf::verify {

struct RepairOptions {
  int connections = 8;
  uint64_t request_bytes = uint64_t{16} << 20;  // of one request, without pieces
};

// plan: as for verifying, with a pin or a folder that dsf-fetch filled. Exit code of the verification after the repair;
// 0 without work to do. Errors: those of examine(), of the Hub, kLocal (disk), kUsage (nothing says where the files
// come from).
Result<int> repair(const Plan& plan, const RepairOptions& options, const std::shared_ptr<hub::Shared>& shared,
                   std::ostream& out, std::ostream& err);

}  // namespace dsf::verify
