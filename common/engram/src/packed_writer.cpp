#include "dsf/engram/packed_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/page_cache.h"
#include "dsf/json/json.h"

namespace dsf::engram {
namespace {

namespace fs = std::filesystem;

// Bounds dirty pages: on unified-memory machines they are GPU memory.
constexpr uint64_t kSyncEveryBytes = 64 * kMiB;

fs::path beside(const fs::path& target, const char* suffix) {
  return target.parent_path() / ("." + target.filename().string() + suffix);
}

std::string journal_header(const PackedHeader& h, std::string_view source) {
  return json::dump(json::Object{{"layer", h.layer_id},
                                 {"lo", h.lo},
                                 {"hi", h.hi},
                                 {"total_rows", h.total_rows},
                                 {"row_bytes", h.row_bytes},
                                 {"block_rows", kPackBlockRows},
                                 {"source", std::string(source)}});
}

}  // namespace

bool has_part(const fs::path& target) {
  std::error_code ec;
  return fs::exists(beside(target, ".part"), ec);
}

PackedWriter::PackedWriter(fs::path target, const PackedHeader& header)
    : target_(std::move(target)),
      part_(beside(target_, ".part")),
      journal_path_(beside(target_, ".journal")),
      header_(header) {}

PackedWriter::~PackedWriter() {
  if (syncing_.valid()) syncing_.wait();
  if (open_ && fd_.valid() && !journal_) discard();
}

void PackedWriter::discard() {
  std::error_code ec;
  fs::remove(part_, ec);
  fs::remove(journal_path_, ec);
  open_ = false;
}

Result<PackedWriter> PackedWriter::create(const fs::path& target, const PackedHeader& header) {
  PackedWriter w(target, header);
  DSF_OK(w.start());
  return w;
}

Result<PackedWriter> PackedWriter::resume(const fs::path& target, const PackedHeader& header, std::string_view source) {
  PackedWriter w(target, header);
  DSF_TRY(w.journal_, codec::Journal::open(w.journal_path_, journal_header(header, source)));
  DSF_TRY(const uint64_t good, w.take_over());
  if (good == 0) {
    DSF_OK(w.start());
    DSF_OK(w.journal_->restart());
    return w;
  }
  // Claims behind the first bad block would stand beside the new ones: write those that hold again.
  if (w.journal_->claims().size() != good) {
    DSF_OK(w.journal_->restart());
    for (uint64_t i = 0; i < good; ++i) DSF_OK(w.journal_->add(i, w.block_sha256_[static_cast<size_t>(i)]));
  }
  w.rows_ = std::min(good * kPackBlockRows, header.hi - header.lo);
  w.syncing_to_ = kPackedHeaderBytes + w.rows_ * header.row_bytes;
  return w;
}

// A new part file: reserved, with its header.
Result<void> PackedWriter::start() {
  DSF_TRY(fd_, io::open_write(part_));
  DSF_OK(io::preallocate(fd_, header_.file_bytes()));
  return io::write_at(fd_, 0, encode_header(header_));
}

// How many blocks from the first one are as the journal says; their digests are taken over.
Result<uint64_t> PackedWriter::take_over() {
  if (journal_->claims().empty() || !has_part(target_)) return uint64_t{0};
  DSF_TRY(fd_, io::open_write(part_, true));
  DSF_TRY(const uint64_t size, io::file_size(fd_));
  std::array<std::byte, kPackedHeaderBytes> head{};
  if (size < head.size()) return uint64_t{0};
  DSF_OK(io::read_at(fd_, 0, head));
  if (head != encode_header(header_)) return uint64_t{0};
  const uint64_t n = header_.hi - header_.lo;
  uint64_t i = 0;
  for (const auto& [index, digest] : journal_->claims()) {
    const uint64_t at = kPackedHeaderBytes + i * kPackBlockRows * header_.row_bytes;
    if (index != i || i * kPackBlockRows >= n) break;
    records_.resize(std::min(kPackBlockRows, n - i * kPackBlockRows) * header_.row_bytes);
    if (at + records_.size() > size) break;
    DSF_OK(io::read_at(fd_, at, records_));
    if (codec::sha256(records_).hex() != digest) break;
    io::drop_page_cache(fd_, at, records_.size());
    block_sha256_.push_back(digest);
    ++i;
  }
  return i;
}

Result<void> PackedWriter::append(std::span<const std::byte> weights, std::span<const std::byte> scales) {
  const uint64_t head_dim = header_.row_bytes / 33 * 32, n = weights.size() / head_dim;
  records_.resize(n * header_.row_bytes);
  interleave_rows(weights, scales, static_cast<int64_t>(head_dim), records_);
  return append_records(records_);
}

Result<void> PackedWriter::append_records(std::span<const std::byte> records) {
  const uint64_t n = records.size() / header_.row_bytes;
  DSF_CHECK(n * header_.row_bytes == records.size() && rows_ + n <= header_.hi - header_.lo,
            "whole records, no more than the header says");
  DSF_CHECK(!journal_ || rows_ % kPackBlockRows == 0, "journaled files grow by whole blocks");
  const uint64_t begin = kPackedHeaderBytes + rows_ * header_.row_bytes, end = begin + records.size();
  DSF_OK(io::write_at(fd_, begin, records));
  io::start_writeback(fd_, begin, records.size());
  rows_ += n;
  if (end - syncing_to_ < kSyncEveryBytes) return {};
  DSF_OK(finish_sync());
  start_sync();
  return {};
}

Result<void> PackedWriter::note_digest(const codec::Digest& digest) {
  block_sha256_.push_back(digest.hex());
  return journal_ ? journal_->add(block_sha256_.size() - 1, block_sha256_.back()) : Result<void>();
}

// The disk works while the next blocks are read: what has been written is waited for when the next window is due.
void PackedWriter::start_sync() {
  const uint64_t from = std::exchange(syncing_to_, kPackedHeaderBytes + rows_ * header_.row_bytes);
  syncing_ =
      std::async(std::launch::async, [this, from, to = syncing_to_] { return io::drop_written(fd_, from, to - from); });
}

Result<void> PackedWriter::finish_sync() { return syncing_.valid() ? syncing_.get() : Result<void>(); }

Result<void> PackedWriter::finish() {
  if (rows_ != header_.hi - header_.lo)
    return fail(Code::kBug, part_.string(),
                std::to_string(header_.hi - header_.lo - rows_) + " rows missing at the end", "report this");
  DSF_OK(finish_sync());
  DSF_OK(io::sync(fd_));
  io::drop_page_cache(fd_, 0, 0);
  DSF_OK(fd_.close());
  DSF_OK(io::rename_file(part_, target_));
  open_ = false;
  DSF_OK(io::sync_dir(target_.parent_path().empty() ? fs::path(".") : target_.parent_path()));
  return io::remove_file(journal_path_);
}

}  // namespace dsf::engram
