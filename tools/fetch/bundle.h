#pragma once
// `dsf-fetch bundle create | verify | extract`: a verified folder as a few large files for a host without a network,
// and back. Source: hub.md 7; bundle_layout.h for the format.
#include <filesystem>
#include <string>

#include "dsf/hub/hub.h"
#include "dsf/manifest/path.h"
#include "tools/fetch/events.h"

namespace dsf::fetch {

struct BundleCreateOptions {
  std::filesystem::path dir;     // filled by `get`, with its record
  std::filesystem::path bundle;  // "X.bundle": the volumes are X.bundle.000 and so on
  std::filesystem::path pin;     // what the folder must hold; empty: what its record names
  std::filesystem::path base;    // pin whose content the receiver has; empty: none
  uint64_t volume_bytes = 64ull << 30;
  int level = 0;  // zstd level of all files; 0: 1 for weights, 3 for the rest
  bool quiet = false;
};
// Every file is hashed on its way in and must be what the pin or record says (kContent otherwise). Finished volumes of
// an earlier run are proved and kept. Writes X.bundle.SHA256SUMS last: with it there, the bundle is whole.
Result<int> run_bundle_create(const BundleCreateOptions& options, const std::function<bool()>& stop, Events& events);

struct BundleVerifyOptions {
  std::filesystem::path bundle, key;  // key: the pin's signature must be of this public key; empty: not asked for
  bool quiet = false;
};
// Reads all volumes once: their digests, every frame's checksum, the digest of every file. Nothing is unpacked. 0 when
// all is well, 1 with one line for each thing that is not.
Result<int> run_bundle_verify(const BundleVerifyOptions& options, const std::function<bool()>& stop, Events& events);

struct BundleExtractOptions {
  std::filesystem::path bundle, local_dir, key;
  manifest::Filter filter;
  uint64_t reserve_bytes = 1ull << 30;
  bool dry_run = false, overwrite = false, quiet = false, space_check = true;
};
// Files arrive as by `get`: part, digest, rename, record (origin "bundle"). Those that are there already are not read.
Result<int> run_bundle_extract(const BundleExtractOptions& options, const std::function<bool()>& stop, Events& events);

}  // namespace dsf::fetch
