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
  int64_t watchdog_us = 120'000'000;    // no byte on any connection for this long: ask the Hub for all places again
  bool keep_bad = false, fail_fast = false;
  bool verify_stored = false;  // read every finished file back from the device before it gets its name
};

struct FileResult {
  const Wanted* wanted = nullptr;
  bool ok = false, skipped = false;  // skipped: stopped before it was done
  Error error;                       // when neither
  std::string sha256, git_sha1, host;
  std::string origin = "network";  // or "bundle"
  bool stored = false;             // the digest is also that of the bytes read back
  double seconds = 0;
  uint64_t resumed_bytes = 0;
};

struct Observer {
  std::function<void(const Wanted&, uint64_t resumed_bytes)> on_start;
  std::function<void(const FileResult&)> on_done;
  std::function<void(uint64_t done_bytes, uint64_t network_bytes)>
      on_tick;                                                // about ten times a second, on the calling thread
  std::function<void(int64_t silent_us)> on_stall;            // the watchdog has fired
  std::function<void(int connections)> on_fewer_connections;  // the budget shrank
};

struct EngineOutcome {
  std::vector<FileResult> files;  // in the engine's order
  uint64_t network_bytes = 0;     // received into part files, repetitions included
};

EngineOutcome run_engine(const std::vector<const Wanted*>& wanted, const std::string& repo, const std::string& commit,
                         const Target& target, const std::shared_ptr<hub::Shared>& shared, const EngineOptions& options,
                         const Observer& observer);

}  // namespace dsf::fetch
