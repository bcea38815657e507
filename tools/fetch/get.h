#pragma once
// `dsf-fetch get`: from a repository or a pin to verified files and their record. Source: hub.md 3, 4.4.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "tools/fetch/engine.h"
#include "tools/fetch/events.h"
#include "tools/fetch/get_plan.h"

namespace dsf::fetch {

struct GetOptions : SourceOptions {
  EngineOptions engine;
  uint64_t reserve_bytes = 1ull << 30;
  int64_t wait_us = 0;  // for the folder's lock
  bool dry_run = false, overwrite = false, rehash = false, space_check = true, quiet = false;
  bool portable = false;
  enum class VerifyAfter { kAuto, kAlways, kNever } verify_after = VerifyAfter::kAuto;  // auto: on network file systems
};

// shared: its stop function and settings are used as they are. Returns 0 or the first error by severity.
Result<int> run_get(const GetOptions& options, const std::shared_ptr<hub::Shared>& shared, Events& events);

// A name that is no file but a manifest installed with the program becomes its path; anything else stays.
std::string find_manifest(const std::string& what);
// Where share/dsf of this installation (or the source tree) is. kMissing when relative is not there.
Result<std::filesystem::path> find_shared(const std::string& relative);

}  // namespace dsf::fetch
