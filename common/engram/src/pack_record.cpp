#include "dsf/engram/pack_record.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/manifest/record.h"

namespace dsf::engram {
namespace {

Result<RecordedPack> read_item(const json::Cursor& c, int rank, int world) {
  RecordedPack p;
  DSF_TRY(p.file, c.string_at("file"));
  const std::pair<const char*, uint64_t*> numbers[] = {{"layer", &p.header.layer_id},
                                                       {"lo", &p.header.lo},
                                                       {"hi", &p.header.hi},
                                                       {"total_rows", &p.header.total_rows},
                                                       {"row_bytes", &p.header.row_bytes},
                                                       {"block_rows", &p.block_rows}};
  for (const auto& [key, value] : numbers) {
    DSF_TRY(const int64_t v, c.integer_at(key, 0, int64_t{1} << 48));
    *value = static_cast<uint64_t>(v);
  }
  DSF_TRY(const json::Cursor blocks, c.at("block_sha256"));
  DSF_TRY(const auto elements, blocks.elements());
  for (const json::Cursor& e : elements) {
    DSF_TRY(std::string digest, e.string());
    p.block_sha256.push_back(std::move(digest));
  }
  const bool sane = p.file == packed_file_name(static_cast<int64_t>(p.header.layer_id), rank, world) &&
                    p.header.lo <= p.header.hi && p.header.hi <= p.header.total_rows && p.header.row_bytes > 0 &&
                    p.header.row_bytes <= kMiB && p.block_rows > 0 && p.block_rows <= (uint64_t{1} << 24) &&
                    p.block_sha256.size() == ceil_div(p.header.hi - p.header.lo, p.block_rows);
  if (!sane)
    return c.fail("file name, rows and block digests do not fit together", "pack again with dsf-pack-engram --force");
  return p;
}

constexpr uint64_t kSampleBlocks = 8;

std::vector<uint64_t> chosen_blocks(uint64_t n, bool all, std::mt19937_64& rng) {
  std::vector<uint64_t> out(n);
  std::iota(out.begin(), out.end(), uint64_t{0});
  if (all || n <= kSampleBlocks) return out;
  std::shuffle(out.begin(), out.end(), rng);
  out.resize(kSampleBlocks);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::string pack_record_name(int rank, int world) {
  return "engram-r" + std::to_string(rank) + "of" + std::to_string(world) + ".json";
}

std::string tree_sha256(const PackedHeader& header, const std::vector<std::string>& block_sha256) {
  codec::Sha256 hash;
  hash.update(codec::sha256(encode_header(header)).bytes);
  for (const std::string& block : block_sha256)
    if (const auto digest = codec::Digest::from_hex(block)) hash.update(digest->bytes);
  return hash.finish().hex();
}

void add_digests(json::Value& item, const RecordedPack& pack) {
  item.set("lo", pack.header.lo);
  item.set("hi", pack.header.hi);
  item.set("total_rows", pack.header.total_rows);
  item.set("row_bytes", pack.header.row_bytes);
  if (pack.block_sha256.empty()) return;
  item.set("tree_sha256", tree_sha256(pack.header, pack.block_sha256));
  item.set("block_rows", pack.block_rows);
  item.set("block_sha256", json::Array(pack.block_sha256.begin(), pack.block_sha256.end()));
}

Result<std::vector<RecordedPack>> load_pack_record(const std::filesystem::path& dir, int rank, int world) {
  const auto path = dir / pack_record_name(rank, world);
  DSF_TRY(const manifest::Record record, manifest::load_record(path, kPackRecordSchema));
  std::vector<RecordedPack> out;
  for (const json::Value& item : record.items) {
    DSF_TRY(RecordedPack p, read_item(json::Cursor(item, path.string()), rank, world));
    out.push_back(std::move(p));
  }
  if (out.empty())
    return fail(Code::kContent, path.string(), "describes no files", "pack again with dsf-pack-engram --force",
                "record");
  return out;
}

Result<bool> block_matches(const io::Fd& file, const RecordedPack& pack, uint64_t i) {
  const PackedHeader& h = pack.header;
  const uint64_t first = i * pack.block_rows, rows = h.hi - h.lo;
  DSF_CHECK(first < rows, "block inside the file");
  std::vector<std::byte> bytes(std::min(pack.block_rows, rows - first) * h.row_bytes);
  const uint64_t at = kPackedHeaderBytes + first * h.row_bytes;
  DSF_OK(io::read_at(file, at, bytes));
  io::drop_page_cache(file, at, bytes.size());
  return codec::sha256(bytes).hex() == pack.block_sha256[i];
}

Result<RecordComparison> compare_with_record(const std::filesystem::path& dir, int rank, int world,
                                             const BlockChoice& choice) {
  DSF_TRY(const std::vector<RecordedPack> packs, load_pack_record(dir, rank, world));
  std::mt19937_64 rng(choice.seed);
  RecordComparison out;
  for (const RecordedPack& p : packs) {
    const auto file = io::open_read(dir / p.file);
    if (!file) {
      out.wrong.push_back(file.error());
      continue;
    }
    out.blocks += p.block_sha256.size();
    for (const uint64_t i : chosen_blocks(p.block_sha256.size(), choice.all, rng)) {
      ++out.blocks_read;
      const auto same = block_matches(*file, p, i);
      if (!same) out.wrong.push_back(same.error());
      if (!same || *same) continue;
      const std::string row = std::to_string(p.header.lo + i * p.block_rows);
      out.wrong.push_back({Code::kContent, file->path().string(),
                           "rows from " + row + " differ from the packing record", "pack it again with dsf-pack-engram",
                           "content"});
    }
  }
  return out;
}

}  // namespace dsf::engram
