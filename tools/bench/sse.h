#pragma once
// Incremental parser of text/event-stream bytes (bench.md 4.4; WHATWG event stream grammar).
//
// Feed reads as they came; each complete event is handed to the sink with the index of the read that brought its last byte. Nothing
// is trimmed but the line end and one space after the colon. Bounded: an event beyond max_event_bytes stops the parser. One thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dsf::bench {

struct SseEvent {
  enum class Kind { kData, kComment };
  Kind kind = Kind::kData;
  std::string name;      // of an "event:" line; empty mostly
  std::string data;      // data lines joined by '\n', or the comment without its colon
  int64_t read = 0;      // index given to the feed() that completed it
};

class SseParser {
 public:
  using Sink = std::function<void(SseEvent&&)>;
  explicit SseParser(Sink sink, size_t max_event_bytes = size_t{4} << 20);

  // False once the stream has broken a bound; further bytes are ignored.
  bool feed(std::string_view bytes, int64_t read_index);
  // Bytes after the last blank line when the stream ended: the data of an unfinished event, nullopt when there was none.
  std::optional<SseEvent> finish(int64_t read_index);
  bool too_large() const { return too_large_; }

 private:
  void line_done(int64_t read_index);
  void dispatch(int64_t read_index);

  Sink sink_;
  size_t max_event_bytes_;
  std::string line_;
  std::string data_;
  std::string name_;
  bool has_data_ = false;
  bool skip_newline_ = false;  // the last byte was '\r': a following '\n' belongs to it
  bool first_line_ = true;     // a byte order mark may start the stream
  bool too_large_ = false;
};

}  // namespace dsf::bench
