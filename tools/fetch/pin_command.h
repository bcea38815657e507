#pragma once
// `dsf-fetch pin` and `ls`: the file list of a repository with its content addresses, for people and as a reviewed
// manifest. Source: hub.md 4.2, 4.3.
#include <filesystem>
#include <memory>
#include <string>

#include "dsf/hub/hub.h"
#include "dsf/manifest/pin.h"

namespace dsf::fetch {

struct PinOptions {
  std::string what;              // repository, or the path of a pin or deployment to update
  std::filesystem::path output;  // empty or "-": stdout for a new pin, the pin itself for an update
  std::string revision, name;
  manifest::Filter filter;
  bool update = false, dry_run = false;
};
Result<int> run_pin(const PinOptions& options, const std::shared_ptr<hub::Shared>& shared);

struct LsOptions {
  std::string what, revision;
  manifest::Filter filter;
  bool json = false;
};
Result<int> run_ls(const LsOptions& options, const std::shared_ptr<hub::Shared>& shared);

// The pin that the Hub's present state gives: base says repository, selection and expectations. Git files are
// downloaded to memory for their SHA-256; LFS files are not. kContent when an expectation is not met.
Result<manifest::Pin> make_pin(const manifest::Pin& base, const std::string& revision, hub::Hub& hub);

}  // namespace dsf::fetch
