#include "tools/fetch/bundle_volume.h"

#include <array>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/codec/zstd.h"
#include "dsf/json/json.h"
#include "tools/fetch/bundle_layout.h"

namespace dsf::fetch {
namespace {

constexpr uint32_t kHeaderMagic = 0x184D2A50, kTableMagic = 0x184D2A5E, kSeekableMagic = 0x8F92EAB1;
constexpr uint64_t kFooterBytes = 9, kEntryBytes = 8, kMaxHeader = 4096;

std::string le32(uint32_t v) {
  std::string out(4, '\0');
  store_le<uint32_t>(out.data(), v);
  return out;
}

std::string skippable(uint32_t magic, const std::string& body) {
  return le32(magic) + le32(static_cast<uint32_t>(body.size())) + body;
}

Unexpected damaged(const std::filesystem::path& path, const std::string& what) {
  return fail(Code::kContent, path.string(), what, "copy this volume again", "bundle");
}

Result<std::string> bytes_at(const io::Fd& fd, uint64_t offset, uint64_t n) {
  std::string out(static_cast<size_t>(n), '\0');
  DSF_OK(io::read_at(fd, offset, std::as_writable_bytes(std::span(out.data(), out.size()))));
  return out;
}

// The skippable frame with the volume's place; returns its size.
Result<uint64_t> read_head(Volume& v) {
  if (v.bytes < 8 + kFooterBytes) return damaged(v.path, "is too short for a volume");
  DSF_TRY(const std::string start, bytes_at(v.fd, 0, 8));
  const uint64_t n = load_le<uint32_t>(start.data() + 4);
  if (load_le<uint32_t>(start.data()) != kHeaderMagic || n > kMaxHeader || 8 + n > v.bytes)
    return damaged(v.path, "does not begin as a volume of a bundle");
  DSF_TRY(const std::string text, bytes_at(v.fd, 8, n));
  DSF_TRY(const json::Value value, json::parse(text, v.path.string()));
  const json::Cursor root(value, v.path.string());
  DSF_TRY(const std::string schema, root.string_at("schema"));
  DSF_TRY(const int64_t version, root.integer_at("version", 1));
  if (schema != "hub-bundle-volume" || version > 1) return damaged(v.path, "is a volume of another kind or version");
  DSF_TRY(v.bundle, root.string_at("bundle"));
  DSF_TRY(const int64_t index, root.integer_at("index", 0, 99'999));
  DSF_TRY(const int64_t raw_begin, root.integer_at("raw_begin", 0));
  v.index = static_cast<uint64_t>(index);
  v.raw_begin = v.raw_end = static_cast<uint64_t>(raw_begin);
  return 8 + n;
}

Result<void> read_table(Volume& v, uint64_t head_bytes) {
  DSF_TRY(const std::string footer, bytes_at(v.fd, v.bytes - kFooterBytes, kFooterBytes));
  const uint64_t n = load_le<uint32_t>(footer.data());
  const uint64_t table = n * kEntryBytes + kFooterBytes + 8;
  if (load_le<uint32_t>(footer.data() + 5) != kSeekableMagic || footer[4] != 0 || n == 0 ||
      table + head_bytes > v.bytes)
    return damaged(v.path, "ends without its seek table");
  DSF_TRY(const std::string bytes, bytes_at(v.fd, v.bytes - table, table));
  if (load_le<uint32_t>(bytes.data()) != kTableMagic || load_le<uint32_t>(bytes.data() + 4) != table - 8)
    return damaged(v.path, "has a malformed seek table");
  uint64_t at = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t stored = load_le<uint32_t>(bytes.data() + 8 + i * kEntryBytes);
    const uint64_t raw = load_le<uint32_t>(bytes.data() + 12 + i * kEntryBytes);
    if (raw > kBundleFrameBytes || (i == 0 && (raw != 0 || stored != head_bytes)) || (i > 0 && raw == 0))
      return damaged(v.path, "has a malformed seek table");
    if (i > 0) v.frames.push_back({at, stored, v.raw_end, raw});
    at += stored;
    v.raw_end += raw;
  }
  return at == v.bytes - table ? Result<void>() : damaged(v.path, "has a seek table that does not fit its size");
}

}  // namespace

std::filesystem::path volume_path(const std::filesystem::path& bundle, uint64_t index) {
  std::array<char, 16> number{};
  std::snprintf(number.data(), number.size(), ".%03llu", static_cast<unsigned long long>(index));
  return bundle.string() + number.data();
}

std::filesystem::path sums_path(const std::filesystem::path& bundle) { return bundle.string() + ".SHA256SUMS"; }

Result<Volume> Volume::open(const std::filesystem::path& path) {
  Volume v;
  v.path = path;
  DSF_TRY(v.fd, io::open_read(path));
  DSF_TRY(v.bytes, io::file_size(v.fd));
  io::advise_sequential(v.fd);
  DSF_TRY(const uint64_t head, read_head(v));
  DSF_OK(read_table(v, head));
  return v;
}

Result<std::string> Volume::read(const StoredFrame& frame, codec::Sha256* whole) const {
  DSF_TRY(const std::string stored, bytes_at(fd, frame.offset, frame.stored));
  if (whole != nullptr) whole->update(as_bytes(stored));
  io::drop_page_cache(fd, frame.offset, frame.stored);
  DSF_TRY(std::string raw, codec::zstd_decompress(as_bytes(stored), path.string(), static_cast<size_t>(frame.raw)));
  if (raw.size() != frame.raw) return damaged(path, "a frame expands to another size than its table says");
  return raw;
}

Result<void> Volume::feed_head(codec::Sha256& whole) const {
  DSF_TRY(const std::string head, bytes_at(fd, 0, frames.empty() ? bytes : frames.front().offset));
  whole.update(as_bytes(head));
  return {};
}

Result<void> Volume::feed_tail(codec::Sha256& whole) const {
  if (frames.empty()) return {};
  const uint64_t at = frames.back().offset + frames.back().stored;
  DSF_TRY(const std::string tail, bytes_at(fd, at, bytes - at));
  whole.update(as_bytes(tail));
  return {};
}

Result<VolumeWriter> VolumeWriter::create(const std::filesystem::path& path, const std::string& bundle, uint64_t index,
                                          uint64_t raw_begin) {
  VolumeWriter w;
  w.path_ = path;
  DSF_TRY(w.fd_, io::open_write(path.string() + ".part"));
  json::Value v = json::Value::object();
  v.set("bundle", bundle);
  v.set("index", index);
  v.set("raw_begin", raw_begin);
  v.set("schema", "hub-bundle-volume");
  v.set("version", 1);
  const std::string head = skippable(kHeaderMagic, json::dump(v));
  w.entries_.emplace_back(static_cast<uint32_t>(head.size()), 0);
  DSF_OK(w.put(head));
  return w;
}

Result<void> VolumeWriter::put(std::string_view bytes) {
  DSF_OK(io::write_all(fd_, as_bytes(bytes)));
  hash_.update(as_bytes(bytes));
  bytes_ += bytes.size();
  return {};
}

uint64_t VolumeWriter::size_with(uint64_t stored) const {
  return bytes_ + stored + (entries_.size() + 1) * kEntryBytes + 8 + kFooterBytes;
}

Result<void> VolumeWriter::add(std::string_view stored, uint64_t raw) {
  entries_.emplace_back(static_cast<uint32_t>(stored.size()), static_cast<uint32_t>(raw));
  return put(stored);
}

Result<codec::Digest> VolumeWriter::finish() {
  std::string table;
  for (const auto& [stored, raw] : entries_) table += le32(stored) + le32(raw);
  table += le32(static_cast<uint32_t>(entries_.size())) + '\0' + le32(kSeekableMagic);
  DSF_OK(put(skippable(kTableMagic, table)));
  DSF_OK(io::sync(fd_));
  io::drop_page_cache(fd_, 0, 0);
  DSF_OK(fd_.close());
  DSF_OK(io::rename_file(path_.string() + ".part", path_));
  DSF_OK(io::sync_dir(path_.parent_path()));
  return hash_.finish();
}

}  // namespace dsf::fetch
