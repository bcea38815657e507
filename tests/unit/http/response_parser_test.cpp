#include "dsf/http/response_parser.h"

#include <doctest/doctest.h>

using dsf::http::ResponseParser;

namespace {

struct Parsed {
  std::string body;
  int status = 0;
  bool complete = false, broken = false, keep_alive = false;
  bool operator==(const Parsed&) const = default;
};

Parsed parse(std::string_view bytes, size_t step, bool eof = false) {
  ResponseParser parser;
  Parsed out;
  for (size_t at = 0; at < bytes.size(); at += step) parser.feed(bytes.substr(at, step), out.body);
  if (eof) parser.feed_eof();
  out.status = parser.status();
  out.complete = parser.complete();
  out.broken = parser.broken();
  out.keep_alive = parser.keep_alive();
  return out;
}

}  // namespace

TEST_CASE("a response reads the same however its bytes were cut") {
  const std::string chunked =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
      "5\r\nhello\r\n1;ext=1\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
  const Parsed want{"hello 0123456789", 200, true, false, true};
  for (size_t step = 1; step <= chunked.size(); ++step) CHECK(parse(chunked, step) == want);
  const std::string sized = "HTTP/1.1 503 Busy\nContent-Length: 4\nConnection: close\n\nbusy";
  for (size_t step = 1; step <= sized.size(); ++step) CHECK(parse(sized, step) == Parsed{"busy", 503, true, false, false});
  CHECK(parse("HTTP/1.1 204 No Content\r\n\r\n", 3).complete);
}

TEST_CASE("a body until close ends with the connection, a chunked one does not") {
  CHECK(parse("HTTP/1.0 200 OK\r\n\r\nabc", 2, true) == Parsed{"abc", 200, true, false, false});
  CHECK_FALSE(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 2, true).complete);
}

TEST_CASE("bytes after a complete response are left to the caller") {
  ResponseParser parser;
  std::string body;
  const std::string_view bytes = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP";
  CHECK(parser.feed(bytes, body) == bytes.size() - 4);
  CHECK(parser.complete());
}

TEST_CASE("what is not HTTP is broken, not a crash") {
  for (const char* bad : {"hello\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 abc\r\n", "HTTP/1.1 200 OK\r\n: x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"}) {
    INFO(bad);
    CHECK(parse(bad, 1).broken);
  }
  CHECK(parse("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'a'), 1000).broken);
}
