#include "tools/bench/sse.h"

#include <doctest/doctest.h>

#include <vector>

using dsf::bench::SseEvent;
using dsf::bench::SseParser;

namespace {

struct Got {
  std::vector<std::string> data;
  std::vector<std::string> comments;
  std::vector<std::string> names;
  bool operator==(const Got&) const = default;
};

Got parse(std::string_view bytes, size_t step) {
  Got got;
  SseParser parser([&](SseEvent&& e) {
    if (e.kind == SseEvent::Kind::kComment) {
      got.comments.push_back(e.data);
    } else {
      got.data.push_back(e.data);
      got.names.push_back(e.name);
    }
  });
  int64_t read = 0;
  for (size_t at = 0; at < bytes.size(); at += step) parser.feed(bytes.substr(at, step), read++);
  if (auto rest = parser.finish(read)) got.data.push_back("unfinished:" + rest->data);
  return got;
}

}  // namespace

TEST_CASE("events do not depend on how the bytes were cut") {
  const std::string stream =
      "\xEF\xBB\xBF: hello\r\n\r\ndata: a\r\ndata:b\r\n\r\nevent: error\ndata:  two spaces \n\n\rdata: c\r\rdata\n\nid: 7\nretry: 1\n\n"
      ":ping\n\ndata: last";
  const Got whole = parse(stream, stream.size());
  CHECK(whole.data == std::vector<std::string>{"a\nb", " two spaces ", "c", "", "unfinished:last"});
  CHECK(whole.comments == std::vector<std::string>{" hello", "ping"});
  CHECK(whole.names == std::vector<std::string>{"", "error", "", ""});
  for (size_t step = 1; step < 12; ++step) CHECK(parse(stream, step) == whole);
}

TEST_CASE("an event belongs to the read that brought its blank line") {
  std::vector<int64_t> reads;
  SseParser parser([&](SseEvent&& e) { reads.push_back(e.read); });
  parser.feed("data: a\n", 0);
  parser.feed("\ndata: b\r\n\r", 1);
  parser.feed("\n", 2);
  parser.feed("data: c\n\ndata: d\n\n", 3);
  CHECK(reads == std::vector<int64_t>{1, 1, 3, 3});
}

TEST_CASE("an endless event stops the parser instead of filling memory") {
  int events = 0;
  SseParser parser([&](SseEvent&&) { ++events; }, 100);
  CHECK(parser.feed("data: ok\n\n", 0));
  bool going = true;
  for (int i = 0; i < 100; ++i) going = parser.feed("data: 0123456789\n", 1);
  CHECK_FALSE(going);
  CHECK(parser.too_large());
  CHECK(events == 1);
}
