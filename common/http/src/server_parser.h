#pragma once
// Bytes of one connection in, requests out. No socket: the connection, the tests and the fuzzer all feed it the same
// way.
//
// Beast reads the request line and the fields of a complete header block. The framing of the body is decided here, more
// strictly than Beast does: a proxy in front of us must not be able to disagree about where a request ends (RFC 9112
// sections 6.3, 7.1, 11.2).
#include <cstdint>
#include <string>
#include <string_view>

#include "dsf/http/server.h"

namespace dsf::http {

class RequestParser {
 public:
  enum class State { kHeader, kBody, kDone, kBad };

  RequestParser(uint32_t max_header_bytes, uint64_t max_body_bytes)
      : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {}

  // Takes bytes as they come off the wire; those after the end of the request wait for next(). No effect once kDone or
  // kBad.
  State feed(std::string_view bytes);
  // Drops the finished request and reads on with what was left over. Only in kDone.
  State next();

  State state() const { return state_; }
  bool started() const {
    return state_ != State::kHeader || !pending_.empty();
  }  // a byte of the current request has been seen
  uint64_t body_bytes() const { return request_.body.size(); }
  ServerRequest& request() { return request_; }  // complete in kDone
  bool http10() const { return http10_; }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const {
    return expects_continue_;
  }  // header done, the peer waits for "100 Continue" before its body
  // In kBad: what to answer.
  int bad_status() const { return bad_status_; }
  const std::string& bad_reason() const { return bad_reason_; }

 private:
  enum class Framing { kLength, kChunkSize, kChunkData, kChunkEnd, kTrailer };

  State run();
  bool find_header_end(size_t& end);
  void read_header(std::string_view block);
  bool read_fields(std::string_view block);
  bool check_framing();
  void read_body();
  bool body_step(size_t& at);
  bool read_chunk_line(std::string_view line);
  bool read_trailer_line(std::string_view line);
  State bad(int status, std::string reason);

  uint32_t max_header_bytes_;
  uint64_t max_body_bytes_;
  State state_ = State::kHeader;
  Framing framing_ = Framing::kLength;
  std::string pending_;     // received, not yet consumed
  size_t scanned_ = 0;      // pending_ is known to hold no end of header before this
  uint64_t remaining_ = 0;  // bytes of the body, or of the chunk, still to come
  uint64_t trailer_bytes_ = 0;
  ServerRequest request_;
  bool http10_ = false, keep_alive_ = false, expects_continue_ = false;
  int bad_status_ = 0;
  std::string bad_reason_;
};

}  // namespace dsf::http
