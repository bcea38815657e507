#pragma once
// What a run shall bring, and what of it is already there. Plain values; see run.h for the steps. Source:
// hub.md 2.1, 3.1.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/json/json.h"
#include "dsf/manifest/pin.h"
#include "dsf/manifest/record.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {

// One file wanted. entry.sha256 is set whenever it is known before the download (LFS files, pinned files).
struct Wanted {
  hub::Entry entry;
  // Digest that names the content for bookkeeping: sha256 of LFS files, git blob id of the others.
  const std::string& etag() const { return entry.lfs || entry.git_sha1.empty() ? entry.sha256 : entry.git_sha1; }
};

struct Plan {
  std::string endpoint, repo, commit;
  std::string pin_name, pin_path, pin_sha256;  // empty without a pin
  bool complete = false;                       // wanted is the whole repository
  std::vector<Wanted> wanted;                  // sorted by path
  uint64_t total_bytes() const;
};

enum class Action { kDownload, kAdopt, kConflict };

struct Checked {
  Action action = Action::kDownload;
  std::string sha256;   // of an adopted file
  bool hashed = false;  // false: taken over from an unchanged stamp of the last record
};

// Looks at the final path of one file: absent, the right content (by stamp or by hash), or something else.
// stamp: the entry of the last record for that path, or nullptr. hash: false only looks at the size (dry run).
Result<Checked> check_existing(const Target& target, const Wanted& wanted, const manifest::FetchedFile* stamp,
                               bool hash);

// What was received against what the device gave back. cls "digest_mismatch".
Result<void> compare_stored(const std::string& received, const std::string& stored, const std::string& subject);

// Digests of a file against what is wanted. cls "digest_mismatch" with both digests.
Result<void> compare(const Wanted& wanted, const std::string& sha256, const std::string& git_sha1,
                     const std::string& subject);

}  // namespace dsf::fetch
