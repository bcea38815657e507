#pragma once
// `dsf-fetch doctor [REPO]`: what a download from here would meet. Source: hub.md 1.8, 3.16.
#include <filesystem>
#include <memory>
#include <string>

#include "dsf/hub/hub.h"

namespace dsf::fetch {

struct DoctorOptions {
  std::string repo;  // empty: the Hub alone
  std::string revision;
  std::filesystem::path local_dir;  // empty: the present folder
  bool json = false;
};
// Checks, each by itself: endpoint, proxy, certificates, token, a small and a large file of the repository with the
// hosts they come from, disk, hashing speed. Prints all of them; the exit code is that of the worst failure.
Result<int> run_doctor(const DoctorOptions& options, const std::shared_ptr<hub::Shared>& shared);

}  // namespace dsf::fetch
