#include <algorithm>
#include <array>
#include <set>

#include "dsf/base/check.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/packed.h"
#include "dsf/engram/rows.h"

namespace dsf::engram {
namespace {

// Everything a later read relies on is settled here: which rows, of which table, of which split, and that all of them are there.
Result<io::Fd> open_part(const std::filesystem::path& path, const PackedHeader& want) {
  auto fd = io::open_read(path);
  if (!fd) {
    Error e = std::move(fd).error();
    if (e.code == Code::kMissing) e.fix = "make it with dsf-pack-engram";
    return fail(std::move(e));
  }
  DSF_TRY(const uint64_t size, io::file_size(*fd));
  std::array<std::byte, kPackedHeaderBytes> head{};
  DSF_OK(io::read_at(*fd, 0, std::span(head).first(std::min<uint64_t>(size, kPackedHeaderBytes))));
  DSF_TRY(const PackedHeader got, parse_packed_header(head, size, path.string()));
  const auto differs = [&](const char* field, uint64_t a, uint64_t b) {
    return fail(Code::kContent, path.string(), std::string(field) + " is " + std::to_string(a) + ", this model, rank and world size need " +
                std::to_string(b), "pack it again with dsf-pack-engram", "header");
  };
  if (got.layer_id != want.layer_id) return differs("layer", got.layer_id, want.layer_id);
  if (got.total_rows != want.total_rows) return differs("table row count", got.total_rows, want.total_rows);
  if (got.row_bytes != want.row_bytes) return differs("row size", got.row_bytes, want.row_bytes);
  if (got.lo != want.lo) return differs("first row", got.lo, want.lo);
  if (got.hi != want.hi) return differs("row end", got.hi, want.hi);
  return std::move(*fd);
}

}  // namespace

Result<std::unique_ptr<PackedRows>> PackedRows::open(const std::filesystem::path& dir, Layout layout, PackedSelection selection) {
  std::vector<std::vector<Part>> parts(layout.layers().size());
  const int first = selection.all_ranks ? 0 : selection.rank;
  const int last = selection.all_ranks ? selection.world - 1 : selection.rank;
  for (size_t l = 0; l < parts.size(); ++l)
    for (int rank = first; rank <= last; ++rank) {
      DSF_TRY(const PackedHeader want, expected_header(layout, l, rank, selection.world));
      DSF_TRY(io::Fd fd, open_part(dir / packed_file_name(layout.layers()[l].layer_id, rank, selection.world), want));
      parts[l].push_back({std::move(fd), {static_cast<int64_t>(want.lo), static_cast<int64_t>(want.hi)}, rank});
    }
  return std::unique_ptr<PackedRows>(new PackedRows(std::move(layout), std::move(parts), selection.world));
}

RowRange PackedRows::owned(size_t layer_index) const {
  const auto& parts = parts_.at(layer_index);
  return {parts.front().rows.begin, parts.back().rows.end};
}

Result<void> PackedRows::read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const {
  const auto row_bytes = static_cast<size_t>(layout_.row_bytes());
  DSF_CHECK(out.size() == rows.size() * row_bytes, "out: [rows, row_bytes]");
  const auto& parts = parts_.at(layer_index);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.rows.contains(rows[i]); });
    if (part == parts.end())
      return fail(Code::kUsage, parts.front().fd.path().string(), "row " + std::to_string(rows[i]) + " belongs to another rank", {}, "row_not_owned");
    const uint64_t at = kPackedHeaderBytes + static_cast<uint64_t>(rows[i] - part->rows.begin) * row_bytes;
    DSF_OK(io::read_at(part->fd, at, out.subspan(i * row_bytes, row_bytes)));
  }
  return {};
}

// The record that the packer left stands for the bytes; without one only names and sizes are known.
std::vector<std::pair<std::string, std::string>> PackedRows::identity() const {
  const auto append = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  std::string names, digests;
  std::set<std::filesystem::path> records;
  for (const auto& parts : parts_)
    for (const Part& p : parts) {
      append(names, p.fd.path().filename().string());
      records.insert(p.fd.path().parent_path() / pack_record_name(p.rank, world_));
    }
  for (const auto& record : records)
    if (const auto digest = codec::sha256_file(record)) append(digests, digest->hex());
  std::vector<std::pair<std::string, std::string>> out{{"engram", "packed"}, {"engram_files", names}};
  if (!digests.empty()) out.emplace_back("engram_record_sha256", digests);
  return out;
}

}  // namespace dsf::engram
