#pragma once
// raw.jsonl.zst: one JSON record a line, flushed after every record, one zstd frame a level (bench.md 3). A killed process leaves a
// readable prefix. The writer belongs to one thread.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "dsf/codec/zstd.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::bench {

class RawWriter {
 public:
  static Result<std::unique_ptr<RawWriter>> create(const std::filesystem::path& path);
  Result<void> write(const json::Value& record);
  Result<void> end_frame();
  Result<void> close();  // ends the frame and syncs

 private:
  explicit RawWriter(io::Fd fd) : fd_(std::move(fd)) {}
  io::Fd fd_;
  std::optional<codec::ZstdWriter> frame_;
};

struct RawFile {
  std::vector<json::Value> records;
  bool cut = false;  // the last frame or line is unfinished: the writer was killed
};
// Errors: kMissing, kContent for damage (not for a missing end).
Result<RawFile> read_raw(const std::filesystem::path& path);

}  // namespace dsf::bench
