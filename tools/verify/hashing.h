#pragma once
// SHA-256 of many files at once, on all cores, without leaving them in the page cache. Source: hub.md 5.4.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/codec/sha256.h"

namespace dsf::verify {

struct HashJob {
  std::filesystem::path path;
  uint64_t size = 0;  // largest first keeps all workers busy to the end
  size_t tag = 0;     // the caller's
};
struct Hashed {
  size_t tag = 0;
  bool unstable = false;  // size, time or inode changed while it was read
  Result<codec::Digest> digest;
};

// done_bytes: counts up while the work runs; read it from another thread. Stops early (kLocal, class "stopped") on a
// stop signal.
std::vector<Hashed> hash_files(std::vector<HashJob> jobs, int n_threads, std::atomic<uint64_t>& done_bytes);

}  // namespace dsf::verify
