#pragma once
// The record beside packed files: engram-r{rank}of{world}.json, schema "engram-pack". It carries the digest of every
// packed block, so that packed files can be checked without their source: by dsf-pack-engram (all of it) and by
// dsf-preflight (some of it).
//
// Values, any thread. Digests are lower-case hex. Source: conventions.md 1, engram.md 7.3.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/packed.h"
#include "dsf/json/json.h"

namespace dsf::engram {

inline constexpr std::string_view kPackRecordSchema = "engram-pack";
// Rows of a digested block: 17 MiB of records in the release.
inline constexpr uint64_t kPackBlockRows = 65536;

struct RecordedPack {
  std::string file;  // name inside the folder
  PackedHeader header;
  uint64_t block_rows = kPackBlockRows;
  std::vector<std::string> block_sha256;  // of the records of each block, in order
};

std::string pack_record_name(int rank, int world);
// SHA-256 over the header's and the blocks' digests: identifies a packed file without a second pass over it.
std::string tree_sha256(const PackedHeader& header, const std::vector<std::string>& block_sha256);
// The members lo, hi, total_rows, row_bytes, block_rows, block_sha256, tree_sha256 of a record's item, after file and
// layer.
void add_digests(json::Value& item, const RecordedPack& pack);

// The packs that the record of this rank describes; names, ranges and block counts are checked against each other.
// Errors: kMissing (no record), kContent.
Result<std::vector<RecordedPack>> load_pack_record(const std::filesystem::path& dir, int rank, int world);

// Reads block i and compares it with its digest. Errors: kLocal, kContent (the file ends early).
Result<bool> block_matches(const io::Fd& file, const RecordedPack& pack, uint64_t i);

// How much of every packed file is compared: all of it, or eight blocks drawn from the seed (136 MiB a file in the
// release; a smaller file is read whole).
struct BlockChoice {
  bool all = false;
  uint64_t seed = 0;
};
struct RecordComparison {
  uint64_t blocks_read = 0, blocks = 0;
  std::vector<Error> wrong;  // kContent, class "content", each naming file and rows; a file that cannot be read
};
// The packed files of one rank against their record. Errors: kMissing (no record), kContent (a record that makes no
// sense).
Result<RecordComparison> compare_with_record(const std::filesystem::path& dir, int rank, int world,
                                             const BlockChoice& choice);

}  // namespace dsf::engram
