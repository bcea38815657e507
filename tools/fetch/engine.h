#pragma once
// The download engine: several connections across and inside files, hashes in file order behind the transfers, each
// file renamed into place by itself after a full match. Source: hub.md 3.
//
// run() blocks; it starts `connections` transfer threads and some hash threads, and reports through the observer
// (called from several threads, one at a time). The caller holds the folder's lock.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "tools/fetch/plan.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {

struct EngineOptions {
  int connections = 16;
  int open_files = 4;
  int hash_threads = 0;      // 0: half the cores, at most open_files
  uint64_t piece_bytes = 0;  // 0: 16 MiB, 64 MiB for files from 8 GiB on
  uint64_t window_bytes =
      4ull << 30;  // transfers run at most this far ahead of the hashes, so that the data is still in the page cache
  uint64_t whole_file_bytes = 8 << 20;  // files up to this size are one piece and have no journal
  uint64_t sync_bytes = 1ull << 30;     // part data is synced this often
  bool keep_bad = false, fail_fast = false;
};

struct FileResult {
  const Wanted* wanted = nullptr;
  bool ok = false, skipped = false;  // skipped: stopped before it was done
  Error error;                       // when neither
  std::string sha256, git_sha1, host;
  double seconds = 0;
  uint64_t resumed_bytes = 0;
};

struct Observer {
  std::function<void(const Wanted&, uint64_t resumed_bytes)> on_start;
  std::function<void(const FileResult&)> on_done;
  std::function<void(uint64_t done_bytes, uint64_t network_bytes)>
      on_tick;  // about ten times a second, on the calling thread
};

std::vector<FileResult> run_engine(const std::vector<const Wanted*>& wanted, const std::string& repo,
                                   const std::string& commit, const Target& target,
                                   const std::shared_ptr<hub::Shared>& shared, const EngineOptions& options,
                                   const Observer& observer);

}  // namespace dsf::fetch
