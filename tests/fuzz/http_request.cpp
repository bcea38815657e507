// The server's request parser: any bytes give requests or a refusal, never a crash, and the same ones however the bytes are cut.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/src/server_parser.h"
#include "dsf/base/check.h"

namespace {

using dsf::http::RequestParser;

constexpr uint32_t kMaxHeader = 2048;
constexpr uint64_t kMaxBody = 4096;

// Every request of the connection as text, and how it ended.
std::string conversation(std::string_view bytes, size_t piece) {
  RequestParser parser(kMaxHeader, kMaxBody);
  std::string log;
  for (size_t at = 0; at <= bytes.size() && parser.state() != RequestParser::State::kBad; at += piece) {
    parser.feed(bytes.substr(at, piece));
    while (parser.state() == RequestParser::State::kDone) {
      const dsf::http::ServerRequest& request = parser.request();
      DSF_CHECK(request.body.size() <= kMaxBody && !request.method.empty() && !request.target.empty(), "a request beyond its limits");
      DSF_CHECK(request.header("Transfer-Encoding").empty() || request.header("Content-Length").empty(), "two framings");
      log += request.method + " " + request.target + " " + request.path + "?" + request.query + " " + request.body + "\n";
      for (const auto& [name, value] : request.headers) log += name + ": " + value + "\n";
      log += parser.keep_alive() ? "keep\n" : "close\n";
      parser.next();
    }
  }
  if (parser.state() == RequestParser::State::kBad) {
    DSF_CHECK(parser.bad_status() >= 400 && parser.bad_status() < 600 && !parser.bad_reason().empty(), "a refusal without a reason");
    log += std::to_string(parser.bad_status()) + " " + parser.bad_reason();
  }
  return log;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = conversation(bytes, size + 1);
  DSF_CHECK(conversation(bytes, 1) == whole, "bytes cut one by one are read differently");
  DSF_CHECK(conversation(bytes, 7) == whole, "bytes cut in sevens are read differently");
  return 0;
}
