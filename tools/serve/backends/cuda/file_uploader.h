#pragma once
// FileUploader: pieces of files to the device. Several threads read into pinned buffers of their own and copy (or repack) from there, so reading,
// the copies and the repack kernels overlap.
//
// Pieces are collected first and read in the order of the files. On machines where device and host share one memory the page cache is dropped
// behind the reading: there it is device memory. One thread collects and runs; errors: kMissing, kLocal, kContent from reading.
#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"
#include "dsf/io/file.h"
#include "tools/serve/backends/cuda/weight_source.h"

namespace dsf::serve::cuda {

class FileUploader {
 public:
  // device: number of the device that the pieces go to. threads: readers, 1 or more.
  FileUploader(int device, const gpu::Facts& facts, int threads) : device_(device), facts_(facts), threads_(threads) {}

  // Bytes as they are.
  Result<void> copy(const std::filesystem::path& file, uint64_t offset, uint64_t bytes, void* to);
  // Of a stored trellis [whole.in/16, whole.out/16, 16 * bits] at `offset` the part, to lanes.
  Result<void> repack(const std::filesystem::path& file, uint64_t offset, const MatrixSize& whole, const MatrixPart& part, int bits, void* lanes);
  // Reads everything that was asked for; returns when it is on the device.
  Result<LoadReport> run();

 private:
  struct Piece {
    const io::Fd* fd = nullptr;
    int file = 0;
    uint64_t offset = 0, row_bytes = 0, rows = 1, stride = 0;  // rows of row_bytes, stride apart in the file
    uint64_t bytes() const { return row_bytes * rows; }
    void* to = nullptr;
    int in = 0, out = 0, bits = 0, k_begin = 0, k_count = 0;  // bits 0: a plain copy
  };
  class Reader;
  Result<const io::Fd*> open(const std::filesystem::path& file);
  Result<void> add(const std::filesystem::path& file, Piece piece);

  int device_;
  gpu::Facts facts_;
  int threads_;
  std::map<std::filesystem::path, io::Fd> files_;
  std::vector<Piece> pieces_;
};

}  // namespace dsf::serve::cuda
