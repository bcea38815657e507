#include "tools/pack-engram/pack.h"

#include <algorithm>
#include <array>
#include <future>

#include "dsf/base/time.h"
#include "dsf/cli/signals.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/packed_writer.h"

namespace dsf::pack_engram {

namespace {

// Hashing runs beside the next read and this write: block k is hashed while block k+1 is gathered into the other
// buffer.
class Packing {
 public:
  Packing(const PackFile& file, const Source& source, engram::PackedWriter& writer)
      : file_(file), source_(source), writer_(writer) {}

  Result<void> run() {
    const uint64_t lo = file_.header.lo, hi = file_.header.hi;
    for (uint64_t row = lo + writer_.rows(); row < hi; row += kBlockRows) {
      if (cli::stop_requested())
        return fail(Code::kLocal, file_.path.string(), "stopped by a signal", "run it again, it goes on from here",
                    "stopped");
      DSF_OK(block(row, std::min(kBlockRows, hi - row)));
    }
    return note_digest();
  }

 private:
  Result<void> block(uint64_t row, uint64_t n) {
    const auto head_dim = static_cast<uint64_t>(source_.layout.head_dim());
    weights_.resize(n * head_dim);
    scales_.resize(n * static_cast<uint64_t>(source_.layout.scale_bytes()));
    DSF_OK(source_.rows->read_block(file_.layer_index, static_cast<int64_t>(row), static_cast<int64_t>(n), weights_,
                                    scales_));
    std::vector<std::byte>& records = records_[turn_];
    turn_ ^= 1;
    records.resize(n * file_.header.row_bytes);
    engram::interleave_rows(weights_, scales_, source_.layout.head_dim(), records);
    DSF_OK(note_digest());
    hashing_ = std::async(std::launch::async, [&records] { return codec::sha256(records); });
    const auto& table = source_.rows->tables()[file_.layer_index];
    io::drop_page_cache(table.weight.fd, table.weight.offset + row * head_dim, weights_.size());
    return writer_.append_records(records);
  }

  Result<void> note_digest() { return hashing_.valid() ? writer_.note_digest(hashing_.get()) : Result<void>(); }

  const PackFile& file_;
  const Source& source_;
  engram::PackedWriter& writer_;
  std::array<std::vector<std::byte>, 2> records_;
  std::vector<std::byte> weights_, scales_;
  size_t turn_ = 0;
  std::future<codec::Digest> hashing_;  // last: ends before the buffers that it reads
};

}  // namespace

Result<Outcome> pack_file(const PackFile& file, const Source& source) {
  const int64_t start = monotonic_ns();
  Outcome out{.file = file, .status = "packed"};
  DSF_TRY(engram::PackedWriter writer, engram::PackedWriter::resume(file.path, file.header, source.identity));
  out.rows_resumed = writer.rows();
  if (const auto done = Packing(file, source, writer).run(); !done) {
    // What this machine interrupted can go on; what the source got wrong cannot.
    if (done.error().code != Code::kLocal) writer.discard();
    return fail(done.error());
  }
  out.block_sha256 = writer.block_sha256();
  DSF_OK(writer.finish());
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return out;
}

Result<void> remove_leftovers(const std::filesystem::path& dir, bool force) {
  DSF_TRY(const auto files, io::list_files(dir));
  for (const std::string& f : files) {
    if (!f.starts_with(".engram-") || f.find('/') != std::string::npos) continue;
    const bool resumable = f.ends_with(".part") || f.ends_with(".journal");
    // A kill between the rename and the journal's end leaves the journal of a file that is complete.
    const std::string part = f.substr(0, f.rfind('.')) + ".part";
    const bool spent = f.ends_with(".journal") && std::find(files.begin(), files.end(), part) == files.end();
    if (f.ends_with(".tmp") || spent || (force && resumable)) DSF_OK(io::remove_file(dir / f));
  }
  return {};
}

}  // namespace dsf::pack_engram
