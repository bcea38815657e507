#pragma once
// One file on its way: part file, journal, state of every piece, the in-order hash. The engine's mutex guards the
// members marked so.
#include <optional>
#include <string>
#include <vector>

#include "dsf/codec/journal.h"
#include "dsf/codec/sha256.h"
#include "dsf/hub/hub.h"
#include "dsf/io/file.h"
#include "tools/fetch/engine.h"

namespace dsf::fetch {

// A piece's digest as the journal has it.
std::string piece_word(uint32_t crc32c);

struct FileTask {
  FileTask(const Wanted& w, const std::string& repo, const std::string& commit, const EngineOptions& options);

  // Opens part and journal, proves the pieces that the journal claims by reading them again. Runs without the engine's
  // mutex.
  Result<void> prepare(const Target& target, const std::function<bool()>& stop);
  uint64_t piece_begin(uint64_t piece) const { return piece * piece_bytes; }
  uint64_t piece_end(uint64_t piece) const { return std::min(size, (piece + 1) * piece_bytes); }
  // Feeds the bytes of a finished piece to the whole-file hash. One thread at a time, pieces in order.
  Result<void> hash_piece(uint64_t piece);
  // All pieces are hashed: compares, then renames into place. cls "digest_mismatch" when the content is wrong.
  Result<void> finish(const Target& target, const std::string& commit, bool verify_stored, FileResult& result);
  // After a mismatch: everything is free again, and one connection takes it in order.
  Result<void> start_over();
  void remove_part(const Target& target, bool keep_bad) const;

  const Wanted& wanted;
  const uint64_t size;
  hub::FileSource source;
  uint64_t piece_bytes = 0, n_pieces = 0;
  std::string id;
  io::Fd part;
  std::optional<codec::Journal> journal;  // guarded; none for one-piece files
  codec::Sha256 hash;

  // guarded by the engine's mutex
  enum class Phase { kQueued, kPreparing, kOpen, kFinishing, kDone, kFailed };
  enum class Piece : uint8_t { kFree, kTaken, kDone };
  Phase phase = Phase::kQueued;
  std::vector<Piece> pieces;
  uint64_t frontier = 0;  // pieces hashed
  int runs = 0;           // transfers in flight
  bool hashing = false, sequential = false;
  uint64_t unsynced = 0, resumed_bytes = 0;
  int64_t started_ns = 0;
  FileResult result;
};

}  // namespace dsf::fetch
