#pragma once
// Incremental parser of one HTTP/1.1 response: head, then a body by chunks, by length or until close (RFC 9112).
//
// For callers that own their socket loop (Connection). Feed bytes as they come; decoded body bytes are appended to the caller's string.
// Bounded: head and trailers by kMaxHeadBytes, chunk lines by kMaxLineBytes. Interim 1xx answers are skipped. Value type, one thread.
#include <cstdint>
#include <string>
#include <string_view>

#include "dsf/http/client.h"

namespace dsf::http {

class ResponseParser {
 public:
  static constexpr size_t kMaxHeadBytes = 64 << 10;
  static constexpr size_t kMaxLineBytes = 4 << 10;

  // Parses bytes and appends body bytes to body. Returns how many bytes belong to this response: fewer than given only when it is
  // complete (what follows was not asked for) or broken.
  size_t feed(std::string_view bytes, std::string& body);
  // The peer closed: completes a body that runs until close.
  void feed_eof();

  bool head_done() const { return state_ > State::kHead; }
  bool complete() const { return state_ == State::kComplete; }
  bool broken() const { return state_ == State::kBroken; }
  const std::string& why_broken() const { return why_; }
  bool keep_alive() const { return keep_alive_; }  // meaningful once complete
  int status() const { return status_; }
  const std::string& version() const { return version_; }  // "1.1"
  const Headers& headers() const { return headers_; }

 private:
  enum class State { kHead, kChunkSize, kChunkData, kChunkEnd, kTrailer, kLength, kUntilClose, kComplete, kBroken };

  size_t take_line(std::string_view bytes, size_t limit, bool& whole);
  void head_line();
  void head_end();
  void chunk_size_line();
  void on_line();
  void fail_with(std::string why);

  State state_ = State::kHead;
  std::string line_;       // the line being gathered
  size_t head_bytes_ = 0;
  bool status_seen_ = false;
  int status_ = 0;
  std::string version_, why_;
  Headers headers_;
  uint64_t left_ = 0;      // of the chunk or of the body
  bool keep_alive_ = true;
};

}  // namespace dsf::http
