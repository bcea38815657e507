#include "tools/pack-engram/check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "dsf/codec/sha256.h"

namespace dsf::pack_engram {
namespace {

Error stopped(const PackFile& file) {
  return Error{Code::kLocal, file.path.string(), "stopped by a signal", "run it again", "stopped"};
}

void note_difference(Outcome& out, uint64_t row) {
  if (out.rows_differing++ == 0) out.first_bad_row = row;
}

struct Buffers {
  std::vector<std::byte> weights, scales, want, got;
};

// One block of consecutive rows; rows differing are noted.
Result<void> compare_block(const PackFile& file, const Source& source, const io::Fd& packed, uint64_t first, uint64_t n,
                           Buffers& b, Outcome& out) {
  const auto head_dim = static_cast<uint64_t>(source.layout.head_dim()),
             scale_bytes = static_cast<uint64_t>(source.layout.scale_bytes());
  const uint64_t row_bytes = file.header.row_bytes,
                 at = engram::kPackedHeaderBytes + (first - file.header.lo) * row_bytes;
  b.weights.resize(n * head_dim);
  b.scales.resize(n * scale_bytes);
  b.want.resize(n * row_bytes);
  b.got.resize(n * row_bytes);
  DSF_OK(source.rows->read_block(file.layer_index, static_cast<int64_t>(first), static_cast<int64_t>(n), b.weights,
                                 b.scales));
  DSF_OK(io::read_at(packed, at, b.got));
  engram::interleave_rows(b.weights, b.scales, source.layout.head_dim(), b.want);
  if (std::memcmp(b.want.data(), b.got.data(), b.want.size()) != 0)
    for (uint64_t i = 0; i < n; ++i)
      if (std::memcmp(b.want.data() + i * row_bytes, b.got.data() + i * row_bytes, row_bytes) != 0)
        note_difference(out, first + i);
  out.rows_compared += n;
  return {};
}

Result<void> compare_all(const PackFile& file, const Source& source, const io::Fd& packed, const Comparison& how,
                         Outcome& out) {
  Buffers b;
  const auto& table = source.rows->tables()[file.layer_index];
  for (uint64_t row = file.header.lo; row < file.header.hi; row += kBlockRows) {
    if (cli::stop_requested()) return fail(stopped(file));
    const uint64_t n = std::min(kBlockRows, file.header.hi - row);
    DSF_OK(compare_block(file, source, packed, row, n, b, out));
    if (out.rows_differing > 0 && how.stop_at_first) return {};
    if (how.digests) out.block_sha256.push_back(codec::sha256(b.got).hex());
    // What has been compared is not needed again, and cached pages are GPU memory on unified-memory machines.
    io::drop_page_cache(packed, engram::kPackedHeaderBytes + (row - file.header.lo) * file.header.row_bytes,
                        b.got.size());
    io::drop_page_cache(table.weight.fd, table.weight.offset + row * static_cast<uint64_t>(source.layout.head_dim()),
                        b.weights.size());
  }
  return {};
}

Result<void> compare_sample(const PackFile& file, const Source& source, const io::Fd& packed, const Comparison& how,
                            Outcome& out) {
  const uint64_t n = file.header.hi - file.header.lo;
  // Files draw different rows from one seed, so that a repeated pattern of damage is not missed in both.
  std::mt19937_64 rng(how.seed ^ (file.header.layer_id << 32) ^ file.header.lo);
  std::vector<uint64_t> rows{file.header.lo, file.header.hi - 1};
  for (int64_t i = 0; i < how.sample_rows; ++i) rows.push_back(file.header.lo + rng() % n);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  Buffers b;
  for (const uint64_t row : rows) DSF_OK(compare_block(file, source, packed, row, 1, b, out));
  return {};
}

}  // namespace

Result<io::Fd> open_and_check_header(const PackFile& file, Outcome& out) {
  const auto wrong = [&](std::string status, std::string what) {
    out.status = std::move(status);
    out.what = std::move(what);
    return io::Fd();
  };
  auto fd = io::open_read(file.path);
  if (!fd)
    return fd.error().code == Code::kMissing ? Result<io::Fd>(wrong("missing", "is not there"))
                                             : fail(std::move(fd).error());
  DSF_TRY(const uint64_t size, io::file_size(*fd));
  std::array<std::byte, engram::kPackedHeaderBytes> bytes{};
  DSF_OK(io::read_at(*fd, 0, std::span(bytes).first(std::min<uint64_t>(size, bytes.size()))));
  const auto header = engram::parse_packed_header(bytes, size, file.path.string());
  if (!header) return wrong(header.error().cls, header.error().what);
  const engram::PackedHeader& want = file.header;
  if (!(*header == want))
    return wrong("header", "is for layer " + std::to_string(header->layer_id) + ", rows [" +
                               std::to_string(header->lo) + ", " + std::to_string(header->hi) + ") of " +
                               std::to_string(header->total_rows) + ", " + std::to_string(header->row_bytes) +
                               " bytes each; expected layer " + std::to_string(want.layer_id) + ", rows [" +
                               std::to_string(want.lo) + ", " + std::to_string(want.hi) + ") of " +
                               std::to_string(want.total_rows) + ", " + std::to_string(want.row_bytes));
  return std::move(*fd);
}

Result<Outcome> compare_with_source(const PackFile& file, const Source& source, const Comparison& how) {
  const int64_t start = monotonic_ns();
  Outcome out{.file = file};
  DSF_TRY(const io::Fd packed, open_and_check_header(file, out));
  if (!packed.valid()) return out;
  io::advise_sequential(packed);
  if (how.sample_rows > 0)
    DSF_OK(compare_sample(file, source, packed, how, out));
  else
    DSF_OK(compare_all(file, source, packed, how, out));
  out.status = out.rows_differing == 0 ? "ok" : "content";
  if (out.rows_differing > 0)
    out.what = (how.stop_at_first ? "row "
                                  : std::to_string(out.rows_differing) + " of " + std::to_string(out.rows_compared) +
                                        " rows differ from the source, first row ") +
               std::to_string(out.first_bad_row) + (how.stop_at_first ? " differs from the source" : "");
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return out;
}

}  // namespace dsf::pack_engram
