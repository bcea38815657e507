#include "dsf/engram/packed.h"

#include <algorithm>
#include <cstring>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::engram {
namespace {
Unexpected wrong(std::string_view subject, std::string what, std::string cls) {
  return fail(Code::kContent, std::string(subject), std::move(what), "pack it again with dsf-pack-engram", std::move(cls));
}
}  // namespace

std::array<std::byte, kPackedHeaderBytes> encode_header(const PackedHeader& header) {
  std::array<std::byte, kPackedHeaderBytes> out{};
  size_t at = 0;
  for (const uint64_t word : {kPackedMagic, header.layer_id, header.lo, header.hi, header.total_rows, header.row_bytes}) {
    store_le(out.data() + at, word);
    at += 8;
  }
  return out;
}

Result<PackedHeader> parse_packed_header(std::span<const std::byte> bytes, uint64_t file_bytes, std::string_view subject) {
  if (bytes.size() < kPackedHeaderBytes || file_bytes < kPackedHeaderBytes)
    return wrong(subject, "too short for a packed Engram file (" + std::to_string(file_bytes) + " bytes)", "size");
  const auto word = [&](size_t i) { return load_le<uint64_t>(bytes.data() + 8 * i); };
  if (word(0) != kPackedMagic) {
    const bool swapped = std::memcmp(bytes.data(), "DSV41EN1", 8) == 0 || word(0) == __builtin_bswap64(kPackedMagic);
    return wrong(subject, swapped ? "magic bytes are swapped, DSV1EN41 expected" : "not a packed Engram file (wrong magic)", "magic");
  }
  const PackedHeader h{word(1), word(2), word(3), word(4), word(5)};
  if (h.lo > h.hi || h.hi > h.total_rows)
    return wrong(subject, "header rows [" + std::to_string(h.lo) + ", " + std::to_string(h.hi) + ") of " + std::to_string(h.total_rows) + " make no sense", "header");
  if (h.row_bytes == 0 || h.row_bytes > (uint64_t{1} << 20)) return wrong(subject, "header row size " + std::to_string(h.row_bytes) + " makes no sense", "header");
  if (!std::all_of(bytes.begin() + 48, bytes.begin() + kPackedHeaderBytes, [](std::byte b) { return b == std::byte{0}; }))
    return wrong(subject, "reserved header bytes are not zero", "reserved");
  const auto payload = checked_mul(h.hi - h.lo, h.row_bytes);
  const auto want = payload ? checked_add(*payload, kPackedHeaderBytes) : std::nullopt;
  if (!want || *want != file_bytes)
    return wrong(subject, "is " + std::to_string(file_bytes) + " bytes, its header needs " + (want ? std::to_string(*want) : "more than 2^64"), "size");
  return h;
}

Result<PackedHeader> expected_header(const Layout& layout, size_t layer_index, int rank, int world) {
  DSF_TRY(const RowRange rows, layout.rank_rows(layer_index, rank, world));
  const LayerConstants& layer = layout.layers()[layer_index];
  return PackedHeader{static_cast<uint64_t>(layer.layer_id), static_cast<uint64_t>(rows.begin), static_cast<uint64_t>(rows.end),
                      static_cast<uint64_t>(layer.rows), static_cast<uint64_t>(layout.row_bytes())};
}

std::string packed_file_name(int64_t layer_id, int rank, int world) {
  return "engram-l" + std::to_string(layer_id) + "-r" + std::to_string(rank) + "of" + std::to_string(world) + ".bin";
}

void interleave_rows(std::span<const std::byte> weights, std::span<const std::byte> scales, int64_t head_dim, std::span<std::byte> out) {
  const auto w = static_cast<size_t>(head_dim), s = w / 32, n = weights.size() / w;
  DSF_CHECK(weights.size() == n * w && scales.size() == n * s && out.size() == n * (w + s), "n rows of weights, scales and records");
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(out.data() + i * (w + s), weights.data() + i * w, w);
    std::memcpy(out.data() + i * (w + s) + w, scales.data() + i * s, s);
  }
}

}  // namespace dsf::engram
