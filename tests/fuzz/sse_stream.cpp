// The benchmark client's view of a server: any bytes give an HTTP answer, events and a record, never a crash, and the same ones however
// the bytes are cut into reads.
#include <cstdint>
#include <string>
#include <string_view>

#include "dsf/base/check.h"
#include "dsf/http/response_parser.h"
#include "tools/bench/events.h"
#include "tools/bench/metrics.h"

namespace {

using namespace dsf;
using namespace dsf::bench;

// The record of a stream whose bytes arrive in pieces of that size. Read numbers are left out: they are what may differ.
std::string record(std::string_view bytes, size_t piece, bool framed) {
  Capture capture;
  capture.http.status = 200;
  capture.http.content_type = "text/event-stream";
  capture.t.release = 0;
  http::ResponseParser parser;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    if (framed) parser.feed(part, capture.body);
    else capture.body += part;
    capture.reads.push_back({static_cast<int64_t>(at), static_cast<int64_t>(part.size()), capture.body.size()});
  }
  if (framed) {
    capture.ending = parser.broken() ? Ending::kBadHttp : parser.complete() ? Ending::kComplete : Ending::kCut;
    capture.http.status = parser.status();
  }
  Request r;
  r.max_tokens = 8;
  assemble(capture, r);
  std::string out(name_of(r.status));
  for (const auto& e : r.events) out += std::string(" ") + std::string(name_of(e.kind)) + std::to_string(e.chars) + "/" + std::to_string(e.tok.value_or(-1));
  out += r.output.text_sha256 + r.output.finish_reason + std::to_string(r.n_tokens.value_or(-1));
  request_metrics(r);
  r.id = r.phase = r.prompt_sha256 = "-";
  const auto back = request_from_json(to_json(r, "fuzz"), "fuzz");
  DSF_CHECK(back.has_value(), "a record that its own reader refuses");
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size > 16384) return 0;
  for (const bool framed : {false, true}) {
    const std::string whole = record(bytes, size + 1, framed);
    for (const size_t piece : {size_t{1}, size_t{7}}) DSF_CHECK(record(bytes, piece, framed) == whole, "the cutting of the bytes changed the record");
  }
  return 0;
}
