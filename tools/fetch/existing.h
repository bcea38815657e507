#pragma once
// Second step of `get`: what of the plan is there already, and whether the rest may and can come. Reads the folder,
// writes nothing (settle_conflicts aside). Source: hub.md 2.1, 3.6, 3.11.
#include <map>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/manifest/record.h"
#include "tools/fetch/get_plan.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {

// The last record's entries by path, when it is of the same repository.
struct Stamps {
  std::map<std::string, manifest::FetchedFile> files;
  std::string revision;
};
Stamps load_stamps(const Planned& p, bool rehash);

struct Found {
  std::vector<Checked> checked;  // parallel to plan.wanted
  std::vector<const Wanted*> missing;
  uint64_t missing_bytes = 0;
};

// Looks at all wanted files, hashing several at once. hash: false looks at sizes alone (dry run).
Result<Found> look(const Plan& plan, const Target& target, const std::map<std::string, manifest::FetchedFile>& stamps,
                   bool hash, const hub::Shared& shared);

// Other content under a wanted name: kLocal "conflict" naming the first ones, or put aside when overwrite.
Result<void> settle_conflicts(const Plan& plan, const Target& target, const Found& found, bool overwrite);

// Names that differ only in ASCII case: kLocal "case_collision" where they would be one file, a warning elsewhere.
// portable: names that other systems refuse are kContent "not_portable", else a warning.
Result<void> check_names(const std::vector<std::string>& paths, bool case_insensitive, bool portable);

// kLocal "no_space" when the missing files and the reserve do not fit.
Result<void> check_space(const Target& target, const Found& found, uint64_t reserve_bytes);

}  // namespace dsf::fetch
