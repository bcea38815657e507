#pragma once
// The Hub, as verify needs it: settings from the environment, and the comparison of what is expected with what the Hub
// lists at the pinned commit. Source: hub.md 5.1 "hub", 1.7.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dsf/hub/hub.h"
#include "tools/verify/evidence.h"
#include "tools/verify/report.h"

namespace dsf::verify {

// Errors: kUsage, kMissing (token file), kOffline (HF_HUB_OFFLINE).
Result<std::shared_ptr<hub::Shared>> connect(const Plan& plan);

// Findings with the path of the file they are about: HB01 other size or digest, HB02 not in the repository, HB03 in the
// repository but not expected. digests of files that the Hub knows by git blob id are taken from the folder itself.
// Errors: kUsage (nothing says which repository), and those of the Hub.
Result<std::vector<std::pair<std::string, Finding>>> compare_with_hub(const Plan& plan, const Evidence& evidence,
                                                                      const std::shared_ptr<hub::Shared>& shared);

}  // namespace dsf::verify
