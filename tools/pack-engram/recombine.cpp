#include "tools/pack-engram/recombine.h"

#include <algorithm>
#include <array>
#include <future>
#include <map>

#include "dsf/base/numeric.h"
#include "dsf/cli/signals.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/packed.h"
#include "dsf/io/file.h"

namespace dsf::pack_engram {
namespace {

constexpr uint64_t kDerivedHeaderBytes = 256;

// Checksums that one installation published for its extraction of the release's tables: strong evidence, not the
// vendor's word. Source: engram.md 4.
struct Published {
  uint64_t layer, rows;
  const char* sha256;
};
constexpr std::array<Published, 2> kPublished{
    {{1, 384006168, "9ecd9bc00c8c045104d639dfdd8d6de4fe0457ce05ad8885baab062d059b0c9e"},
     {14, 384016682, "0c33910e5a59c2787d1bc1891ca5961248e1db94e7919c562afbf4cedba2f5b2"}}};

struct Part {
  io::Fd fd;
  engram::PackedHeader header;
};

Result<Part> open_part(const std::filesystem::path& path) {
  DSF_TRY(io::Fd fd, io::open_read(path));
  DSF_TRY(const uint64_t size, io::file_size(fd));
  std::array<std::byte, engram::kPackedHeaderBytes> head{};
  DSF_OK(io::read_at(fd, 0, std::span(head).first(std::min<uint64_t>(size, head.size()))));
  DSF_TRY(const engram::PackedHeader header, engram::parse_packed_header(head, size, path.string()));
  io::advise_sequential(fd);
  return Part{std::move(fd), header};
}

// The files of all ranks, whose rows must follow each other from the first to the last row of the table.
Result<std::vector<Part>> open_layer(const Plan& plan, uint64_t layer) {
  std::vector<Part> parts;
  uint64_t next = 0;
  for (int rank = 0; rank < plan.world; ++rank) {
    const auto path = plan.packs / engram::packed_file_name(static_cast<int64_t>(layer), rank, plan.world);
    DSF_TRY(Part part, open_part(path));
    const engram::PackedHeader& h = part.header;
    const bool joins = h.layer_id == layer && h.lo == next && h.row_bytes % 33 == 0 &&
                       (parts.empty() || (h.total_rows == parts.front().header.total_rows &&
                                          h.row_bytes == parts.front().header.row_bytes));
    if (!joins)
      return fail(Code::kContent, path.string(),
                  "holds rows [" + std::to_string(h.lo) + ", " + std::to_string(h.hi) + ") of layer " +
                      std::to_string(h.layer_id) + ", row " + std::to_string(next) + " of layer " +
                      std::to_string(layer) + " comes next",
                  "pack it again with dsf-pack-engram", "header");
    next = h.hi;
    parts.push_back(std::move(part));
  }
  if (next != parts.front().header.total_rows)
    return fail(Code::kContent, parts.back().fd.path().string(),
                "ends at row " + std::to_string(next) + " of " + std::to_string(parts.front().header.total_rows),
                "check --world-size", "header");
  return parts;
}

// Hashes bytes [from, from + n) of every record of a part.
Result<void> hash_columns(const Part& part, uint64_t from, uint64_t n, codec::Sha256& hash) {
  const uint64_t row_bytes = part.header.row_bytes, rows = part.header.hi - part.header.lo;
  std::vector<std::byte> records, columns;
  for (uint64_t row = 0; row < rows; row += engram::kPackBlockRows) {
    if (cli::stop_requested())
      return fail(Code::kLocal, part.fd.path().string(), "stopped by a signal", "run it again", "stopped");
    const uint64_t count = std::min(engram::kPackBlockRows, rows - row);
    records.resize(count * row_bytes);
    columns.resize(count * n);
    const uint64_t at = engram::kPackedHeaderBytes + row * row_bytes;
    DSF_OK(io::read_at(part.fd, at, records));
    for (uint64_t i = 0; i < count; ++i)
      std::copy_n(records.begin() + static_cast<std::ptrdiff_t>(i * row_bytes + from), n,
                  columns.begin() + static_cast<std::ptrdiff_t>(i * n));
    hash.update(columns);
    io::drop_page_cache(part.fd, at, records.size());
  }
  return {};
}

Result<LayerDigest> digest_of(const Plan& plan, uint64_t layer) {
  DSF_TRY(const std::vector<Part> parts, open_layer(plan, layer));
  const uint64_t head_dim = parts.front().header.row_bytes / 33 * 32, rows = parts.front().header.total_rows;
  codec::Sha256 hash;
  hash.update(as_bytes(derived_prefix(layer, rows, head_dim)));
  for (const Part& p : parts) DSF_OK(hash_columns(p, head_dim, head_dim / 32, hash));
  for (const Part& p : parts) DSF_OK(hash_columns(p, 0, head_dim, hash));
  LayerDigest out{layer, rows, hash.finish().hex(), "", ""};
  const auto given = plan.expected_layers.find(layer);
  const auto known = std::find_if(kPublished.begin(), kPublished.end(),
                                  [&](const Published& p) { return p.layer == layer && p.rows == rows; });
  if (given != plan.expected_layers.end()) {
    out.expected = given->second;
    out.source = "--expect";
  } else if (known != kPublished.end()) {
    out.expected = known->sha256;
    out.source = "published for one installation's extraction of the release";
  }
  return out;
}

Result<std::vector<uint64_t>> layers_of(const Plan& plan) {
  DSF_TRY(const auto files, io::list_files(plan.packs));
  const std::string suffix = "-r0of" + std::to_string(plan.world) + ".bin";
  std::vector<uint64_t> out;
  for (const std::string& f : files) {
    constexpr std::string_view kPrefix = "engram-l";
    if (!f.starts_with(kPrefix) || !f.ends_with(suffix)) continue;
    const auto layer = parse_u64(std::string_view(f).substr(kPrefix.size(), f.size() - kPrefix.size() - suffix.size()));
    if (layer && *layer < (uint64_t{1} << 32)) out.push_back(*layer);
  }
  std::sort(out.begin(), out.end());
  if (out.empty())
    return fail(Code::kMissing, plan.packs.string(),
                "holds no packed files of world size " + std::to_string(plan.world),
                "give --world-size as it was when packing", "missing");
  return out;
}

}  // namespace

std::string derived_prefix(uint64_t layer, uint64_t rows, uint64_t head_dim) {
  const std::string base = "layers." + std::to_string(layer) + ".engram.embed.", n = std::to_string(rows);
  const uint64_t scales = rows * (head_dim / 32), end = scales + rows * head_dim;
  std::string header = R"({"__metadata__":{"format":"pt"},")" + base + R"(scale":{"dtype":"F8_E8M0","shape":[)" + n +
                       "," + std::to_string(head_dim / 32) + R"(],"data_offsets":[0,)" + std::to_string(scales) +
                       R"(]},")" + base + R"(weight":{"dtype":"F8_E4M3","shape":[)" + n + "," +
                       std::to_string(head_dim) + R"(],"data_offsets":[)" + std::to_string(scales) + "," +
                       std::to_string(end) + "]}}";
  header.resize(std::max(kDerivedHeaderBytes, round_up<uint64_t>(header.size(), 8)), ' ');
  std::string out(8, '\0');
  store_le<uint64_t>(out.data(), header.size());
  return out + header;
}

Result<std::vector<LayerDigest>> recombine(const Plan& plan) {
  DSF_TRY(const std::vector<uint64_t> layers, layers_of(plan));
  std::vector<std::future<Result<LayerDigest>>> running;
  for (const uint64_t layer : layers)
    running.push_back(std::async(std::launch::async, [&plan, layer] { return digest_of(plan, layer); }));
  std::vector<LayerDigest> out;
  std::optional<Error> first;
  for (auto& r : running) {
    auto digest = r.get();
    if (digest)
      out.push_back(std::move(*digest));
    else if (!first)
      first = digest.error();
  }
  if (first) return fail(std::move(*first));
  return out;
}

}  // namespace dsf::pack_engram
