#pragma once
// `dsf-fetch get`: from a repository or a pin to verified files and their record. Source: hub.md 3, 4.4.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/manifest/path.h"
#include "tools/fetch/engine.h"
#include "tools/fetch/events.h"

namespace dsf::fetch {

struct GetOptions {
  std::string what;                // "org/name[@rev]" or the path of a pin or deployment
  std::vector<std::string> paths;  // explicit names; empty: all
  std::filesystem::path local_dir;
  std::string revision;
  manifest::Filter filter;
  EngineOptions engine;
  uint64_t reserve_bytes = 1ull << 30;
  int64_t wait_us = 0;  // for the folder's lock
  bool dry_run = false, overwrite = false, allow_open = false, offline = false, rehash = false, space_check = true,
       quiet = false;
};

// shared: its stop function and settings are used as they are. Returns 0 or the first error by severity.
Result<int> run_get(const GetOptions& options, const std::shared_ptr<hub::Shared>& shared, Events& events);

// A name that is no file but a manifest installed with the program becomes its path; anything else stays.
std::string find_manifest(const std::string& what);
// Where share/dsf of this installation (or the source tree) is. kMissing when relative is not there.
Result<std::filesystem::path> find_shared(const std::string& relative);

}  // namespace dsf::fetch
