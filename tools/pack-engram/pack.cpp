#include "tools/pack-engram/pack.h"

#include <array>
#include <future>

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "dsf/codec/sha256.h"

namespace dsf::pack_engram {

Result<Outcome> pack_file(const PackFile& file, const Source& source) {
  const int64_t start = monotonic_ns();
  Outcome out{.file = file, .status = "packed"};
  const auto head_dim = static_cast<uint64_t>(source.layout.head_dim()), scale_bytes = static_cast<uint64_t>(source.layout.scale_bytes());
  const auto& table = source.rows->tables()[file.layer_index];
  DSF_TRY(engram::PackedWriter writer, engram::PackedWriter::create(file.path, file.header));

  // Hashing runs beside the next read and this write: block k is hashed while block k+1 is gathered into the other buffer.
  std::array<std::vector<std::byte>, 2> records;
  std::vector<std::byte> weights, scales;
  std::future<codec::Digest> hashing;
  size_t turn = 0;
  for (uint64_t row = file.header.lo; row < file.header.hi; row += kBlockRows, turn ^= 1) {
    if (cli::stop_requested()) return fail(Code::kLocal, file.path.string(), "stopped by a signal", "run it again", "stopped");
    const uint64_t n = std::min(kBlockRows, file.header.hi - row);
    weights.resize(n * head_dim);
    scales.resize(n * scale_bytes);
    DSF_OK(source.rows->read_block(file.layer_index, static_cast<int64_t>(row), static_cast<int64_t>(n), weights, scales));
    std::vector<std::byte>& block = records[turn];
    block.resize(n * file.header.row_bytes);
    engram::interleave_rows(weights, scales, source.layout.head_dim(), block);
    if (hashing.valid()) out.block_sha256.push_back(hashing.get().hex());
    hashing = std::async(std::launch::async, [&block] { return codec::sha256(block); });
    DSF_OK(writer.append_records(block));
    io::drop_page_cache(table.weight.fd, table.weight.offset + row * head_dim, weights.size());
  }
  if (hashing.valid()) out.block_sha256.push_back(hashing.get().hex());
  DSF_OK(writer.finish());
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return out;
}

Result<void> remove_leftovers(const std::filesystem::path& dir) {
  DSF_TRY(const auto files, io::list_files(dir));
  for (const std::string& f : files)
    if (f.starts_with(".engram-l") && f.ends_with(".tmp") && f.find('/') == std::string::npos) DSF_OK(io::remove_file(dir / f));
  return {};
}

}  // namespace dsf::pack_engram
