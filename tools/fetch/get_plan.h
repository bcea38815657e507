#pragma once
// First step of `get` and `tensors`: from what the user names (repository, pin or deployment) to the list of wanted
// files at one commit. Makes API calls only. Source: hub.md 3.1, 3.12, 4.2.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/manifest/path.h"
#include "dsf/manifest/pin.h"
#include "tools/fetch/plan.h"

namespace dsf::fetch {

struct SourceOptions {
  std::string what;                // "org/name[@rev]" or the path of a pin or deployment
  std::vector<std::string> paths;  // explicit names; empty: all
  std::filesystem::path local_dir;
  std::string revision;
  manifest::Filter filter;
  std::vector<manifest::Role> roles;    // empty: all
  std::filesystem::path signature_key;  // a pin must be signed by this public key; empty: not asked for
  bool allow_open = false, offline = false;
};

struct Planned {
  Plan plan;
  std::filesystem::path dir;
  std::vector<hub::Entry> listing;  // when it was asked for, whole
  std::optional<manifest::Pin> pin;
};

// One plan for a repository or pin, one per pin of a deployment. Errors: kUsage (open pin, filters that match nothing),
// kMissing (a named file), kContent (pin and Hub disagree), kOffline, and those of the Hub.
Result<std::vector<Planned>> make_plans(const SourceOptions& options, const std::shared_ptr<hub::Shared>& shared);

}  // namespace dsf::fetch
