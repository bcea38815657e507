#pragma once
// Writes one packed row file (packed.h has the format): a part file beside the target, records in order, fsync, rename.
//
// A journaled writer (resume()) survives kill -9 and a crash of the machine: beside the part file stands a journal with
// the digests of whole blocks, and the next run re-reads those blocks, compares, and goes on behind the last good one.
// One thread; the target is never half a file. Source: engram.md 6.5.
#include <filesystem>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/codec/journal.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/packed.h"

namespace dsf::engram {

class PackedWriter {
 public:
  // Without a journal: dropped unfinished, nothing stays.
  static Result<PackedWriter> create(const std::filesystem::path& target, const PackedHeader& header);
  // Goes on where an earlier run with the same header and source stopped. source: what identifies the tables that are
  // packed; a part of anything else starts anew. Dropped unfinished, part and journal stay. Records must then be
  // appended in whole blocks of kPackBlockRows (the last may be shorter), each followed by its note_digest() at any
  // later time, in order.
  static Result<PackedWriter> resume(const std::filesystem::path& target, const PackedHeader& header,
                                     std::string_view source);
  PackedWriter(PackedWriter&&) noexcept = default;  // before the first record only
  PackedWriter& operator=(PackedWriter&&) = delete;
  ~PackedWriter();

  uint64_t rows() const { return rows_; }                                         // written so far
  const std::vector<std::string>& block_sha256() const { return block_sha256_; }  // of blocks, as far as they are known

  // weights: [n, head_dim], scales: [n, head_dim/32], the next n rows.
  Result<void> append(std::span<const std::byte> weights, std::span<const std::byte> scales);
  // The same rows already interleaved. records: [n, row_bytes].
  Result<void> append_records(std::span<const std::byte> records);
  Result<void> note_digest(const codec::Digest& digest);
  // Errors: kBug when rows are missing, kLocal.
  Result<void> finish();
  // Removes what a later run would go on with.
  void discard();

 private:
  PackedWriter(std::filesystem::path target, const PackedHeader& header);
  Result<void> start();
  Result<uint64_t> take_over();
  void start_sync();
  Result<void> finish_sync();
  std::filesystem::path target_, part_, journal_path_;
  PackedHeader header_;
  io::Fd fd_;
  std::optional<codec::Journal> journal_;
  uint64_t rows_ = 0;
  uint64_t syncing_to_ = 0;  // written back, but for metadata, once the running sync is done
  std::future<Result<void>> syncing_;
  std::vector<std::string> block_sha256_;
  std::vector<std::byte> records_;
  bool open_ = true;
};

// Whether a part file of this target is there to go on with.
bool has_part(const std::filesystem::path& target);

}  // namespace dsf::engram
