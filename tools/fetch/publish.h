#pragma once
// `dsf-fetch publish DIR DST`: a verified folder into a share that others read while it changes. Source: hub.md 3.7.
//
// Idempotent: what is published with the same digest is not touched, neither inode nor time. What differs arrives by a
// temporary name and a rename, never by writing into an existing file, so that no reader sees an absent or short one.
// Order: data, then metadata, then SHA256SUMS, then manifest.json: who sees the manifest may rely on the rest.
#include <filesystem>

#include "dsf/hub/hub.h"
#include "tools/fetch/events.h"

namespace dsf::fetch {

struct PublishOptions {
  std::filesystem::path dir, dst;
  // kAuto links data files on one file system and copies otherwise; metadata is always copied.
  enum class How { kAuto, kHardlink, kCopy, kReflink } how = How::kAuto;
  // Publishes into DST@<12 digits of the commit> and makes DST a symbolic link to it, switched by a rename.
  bool versioned = false;
  bool dry_run = false, quiet = false;
};
// DIR must hold the record of a `get`; a file that changed since is hashed again (kContent when it differs).
Result<int> run_publish(const PublishOptions& options, const std::function<bool()>& stop, Events& events);

}  // namespace dsf::fetch
