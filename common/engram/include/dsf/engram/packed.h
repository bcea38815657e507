#pragma once
// Packed row files engram-l{layer}-r{rank}of{world}.bin: header, names and sizes. The writer is in packed_writer.h.
//
//   0     u64le magic 0x31344E4531565344 (bytes "DSV1EN41")
//   8     u64le layer id        16 u64le lo        24 u64le hi        32 u64le rows of the whole table        40 u64le row bytes
//   48    4048 zero bytes
//   4096  records of rows lo .. hi-1: head_dim bytes e4m3, then head_dim/32 bytes e8m0; raw source bytes, no padding, no trailer
//
// Source: engram.md section 6.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/layout.h"
#include "dsf/io/file.h"

namespace dsf::engram {

inline constexpr uint64_t kPackedMagic = 0x31344E4531565344u;
inline constexpr uint64_t kPackedHeaderBytes = 4096;

struct PackedHeader {
  uint64_t layer_id = 0, lo = 0, hi = 0, total_rows = 0, row_bytes = 0;
  bool operator==(const PackedHeader&) const = default;
  uint64_t file_bytes() const { return kPackedHeaderBytes + (hi - lo) * row_bytes; }  // of a header that parsed
};

std::array<std::byte, kPackedHeaderBytes> encode_header(const PackedHeader& header);
// bytes: the first 4096 bytes of the file (fewer is an error); file_bytes: its size. Errors: kContent with cls "magic", "header",
// "reserved" or "size".
Result<PackedHeader> parse_packed_header(std::span<const std::byte> bytes, uint64_t file_bytes, std::string_view subject);
// The header that this rank's file of this layer must have. Errors: those of Layout::rank_rows.
Result<PackedHeader> expected_header(const Layout& layout, size_t layer_index, int rank, int world);
std::string packed_file_name(int64_t layer_id, int rank, int world);

// weights and scales -> records (the same bytes, interleaved). out: [n, head_dim + head_dim/32].
void interleave_rows(std::span<const std::byte> weights, std::span<const std::byte> scales, int64_t head_dim, std::span<std::byte> out);

}  // namespace dsf::engram
