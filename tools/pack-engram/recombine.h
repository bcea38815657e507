#pragma once
// The digest of a layer's whole table, recomputed from the packed files of all ranks: without the source, it proves the
// packs against a checksum that somebody published for the table. Source: engram.md 4 (derived files), 7.4.
#include <cstdint>
#include <string>
#include <vector>

#include "tools/pack-engram/options.h"

namespace dsf::pack_engram {

struct LayerDigest {
  uint64_t layer = 0, rows = 0;
  std::string sha256;
  std::string expected;  // empty: nobody has published one for this table
  std::string source;    // of the expectation
  bool good() const { return expected.empty() || expected == sha256; }
};

// The first bytes of the derived single-layer file: u64le header length, header padded with spaces to at least 256.
std::string derived_prefix(uint64_t layer, uint64_t rows, uint64_t head_dim);

// One digest per layer that rank 0 has a file of. Two passes over the files, one thread a layer.
// Errors: kMissing (no files, a rank's file absent), kContent (headers malformed, ranges that do not join), kLocal.
Result<std::vector<LayerDigest>> recombine(const Plan& plan);

}  // namespace dsf::pack_engram
