#include "tools/serve/backends/cuda/file_uploader.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"

namespace dsf::serve::cuda {
namespace {

constexpr uint64_t kPieceBytes = 8 * kMiB;   // a piece of a large tensor
constexpr uint64_t kBufferBytes = 16 * kMiB; // of one half of a reader's pinned memory, unless one block of 128 inputs is larger
constexpr uint64_t kAlign = 256;

}  // namespace

Result<const io::Fd*> FileUploader::open(const std::filesystem::path& file) {
  auto at = files_.find(file);
  if (at == files_.end()) {
    DSF_TRY(io::Fd fd, io::open_read(file));
    at = files_.emplace(file, std::move(fd)).first;
  }
  return &at->second;
}

Result<void> FileUploader::add(const std::filesystem::path& file, Piece piece) {
  DSF_TRY(piece.fd, open(file));
  piece.file = piece.fd->get();
  pieces_.push_back(piece);
  return {};
}

Result<void> FileUploader::copy(const std::filesystem::path& file, uint64_t offset, uint64_t bytes, void* to) {
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    DSF_OK(add(file, {.offset = offset + at, .row_bytes = std::min(kPieceBytes, bytes - at), .to = static_cast<std::byte*>(to) + at}));
  }
  return {};
}

Result<void> FileUploader::repack(const std::filesystem::path& file, uint64_t offset, const MatrixSize& whole, const MatrixPart& part, int bits, void* lanes) {
  const auto tile = static_cast<uint64_t>(bits) * 32, tile_row = static_cast<uint64_t>(whole.out) / 16 * tile;
  const auto out = static_cast<int>(part.out_end - part.out_begin), in = static_cast<int>(part.in_end - part.in_begin);
  const uint64_t row_bytes = static_cast<uint64_t>(out) / 16 * tile, block = 8 * row_bytes;  // block: 128 inputs
  const bool whole_rows = out == whole.out;
  offset += static_cast<uint64_t>(part.in_begin) / 16 * tile_row + static_cast<uint64_t>(part.out_begin) / 16 * tile;
  const int kb = in / 128, step = static_cast<int>(std::clamp<uint64_t>(kPieceBytes / block, 1, static_cast<uint64_t>(kb)));
  for (int k = 0; k < kb; k += step) {
    const int count = std::min(step, kb - k);
    const auto tile_rows = static_cast<uint64_t>(count) * 8;
    DSF_OK(add(file, {.offset = offset + static_cast<uint64_t>(k) * 8 * tile_row, .row_bytes = whole_rows ? row_bytes * tile_rows : row_bytes,
                      .rows = whole_rows ? 1 : tile_rows, .stride = tile_row, .to = lanes, .in = in, .out = out, .bits = bits, .k_begin = k, .k_count = count}));
  }
  return {};
}

// One thread's stream and two halves of pinned memory with as much device memory behind them: one is filled while the other is copied.
class FileUploader::Reader {
 public:
  Reader(bool drop_cache, uint64_t half_bytes) : drop_cache_(drop_cache), half_bytes_(half_bytes) {}

  Result<void> prepare() {
    DSF_TRY(stream_, gpu::Stream::create());
    DSF_TRY(host_, gpu::allocate_pinned(2 * half_bytes_));
    DSF_TRY(staging_, gpu::allocate(2 * half_bytes_));
    for (gpu::Event& e : copied_) {
      DSF_TRY(e, gpu::Event::create());
    }
    return {};
  }

  Result<void> take(const Piece& p) {
    const uint64_t bytes = p.bytes();
    if (used_ + bytes > half_bytes_) DSF_OK(next_half());
    const size_t at = static_cast<size_t>(half_) * half_bytes_ + used_;
    used_ += round_up(bytes, kAlign);
    for (uint64_t row = 0; row < p.rows; ++row)
      DSF_OK(io::read_at(*p.fd, p.offset + row * p.stride, {host_.as<std::byte>(at + row * p.row_bytes), p.row_bytes}));
    if (drop_cache_) io::drop_page_cache(*p.fd, p.offset, (p.rows - 1) * p.stride + p.row_bytes);
    if (p.bits == 0) return gpu::copy_to_device(stream_, p.to, host_.as<std::byte>(at), bytes);
    DSF_OK(gpu::copy_to_device(stream_, staging_.as<std::byte>(at), host_.as<std::byte>(at), bytes));
    return ops::exl3_repack(stream_, staging_.as<std::byte>(at), p.to, p.in, p.out, p.bits, static_cast<int64_t>(p.out) / 2 * p.bits, p.k_begin, p.k_count);
  }

  Result<void> finish() { return stream_.wait(); }

 private:
  Result<void> next_half() {
    DSF_OK(copied_[half_].record(stream_));
    pending_[half_] = true;
    half_ ^= 1, used_ = 0;
    return pending_[half_] ? copied_[half_].wait() : Result<void>{};
  }

  bool drop_cache_;
  uint64_t half_bytes_, used_ = 0;
  size_t half_ = 0;
  gpu::Stream stream_;
  gpu::PinnedBuffer host_;
  gpu::DeviceBuffer staging_;
  gpu::Event copied_[2];
  bool pending_[2] = {};
};

Result<LoadReport> FileUploader::run() {
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.file != b.file ? a.file < b.file : a.offset < b.offset; });
  LoadReport report;
  uint64_t half = kBufferBytes;
  for (const Piece& p : pieces_) report.bytes += p.bytes(), half = std::max(half, round_up(p.bytes(), kAlign));
  const int64_t start = monotonic_ns();
  std::atomic<size_t> next = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::optional<Error> error;
  const auto work = [&]() -> Result<void> {
    DSF_OK(gpu::open(device_));  // current for this thread
    Reader reader(facts_.integrated, half);
    DSF_OK(reader.prepare());
    for (size_t i = next++; i < pieces_.size() && !stop; i = next++) DSF_OK(reader.take(pieces_[i]));
    return reader.finish();
  };
  const size_t n_threads = std::min<size_t>(static_cast<size_t>(threads_), pieces_.size() / 4 + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n_threads; ++i)
    threads.emplace_back([&] {
      if (auto done = work(); !done) {
        const std::lock_guard lock(mutex);
        stop = true;
        if (!error) error = std::move(done).error();
      }
    });
  for (std::thread& t : threads) t.join();
  if (error) return fail(std::move(*error));
  report.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  pieces_.clear();
  files_.clear();
  return report;
}

}  // namespace dsf::serve::cuda
