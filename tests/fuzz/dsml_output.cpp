// A model's reply: the first four bytes choose the options and the cuts, the rest is the text. However it is cut, the events say the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "dsf/base/check.h"
#include "dsf/json/json.h"
#include "dsf/tokenizer/output_parser.h"
#include "dsf/tokenizer/tokenizer.h"

namespace {

using namespace dsf::tokenizer;

const std::vector<Tool>& tools() {
  static const std::vector<Tool> list = [] {
    const auto value = dsf::json::parse(R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "i": {"type": "integer"},
        "o": {"type": ["object", "null"]}, "a": {"anyOf": [{"type": "boolean"}, {"enum": [1, 2.5]}]}}}}])", "tools");
    return *parse_tools(*value);
  }();
  return list;
}

ParserOptions options_of(uint8_t a, uint8_t b) {
  ParserOptions o;
  o.start = static_cast<ParserStart>(a & 3);
  o.forced_name = "f";
  o.continues_text = (a & 4) != 0;
  o.parse_calls = (a & 24) != 24;
  o.parallel_calls = (a & 32) == 0;
  if (a & 64) o.stop = {"STOP", "\n\n", "abab"};
  o.include_stop = (a & 128) != 0;
  if (b & 1) o.only_function = "g";
  if (b & 2) o.tools = tools();
  o.new_call_id = [] { return std::string("id"); };
  return o;
}

// The events as one text: kind, call and joined text.
std::string transcript(const ParserOptions& options, std::string_view text, size_t cut, EndCause cause) {
  OutputParser parser(options);
  std::string out;
  int last_kind = -1, last_call = -1;
  const auto add = [&](const std::vector<Event>& events) {
    for (const Event& e : events) {
      const int kind = static_cast<int>(e.kind);
      if (kind != last_kind || e.call != last_call || e.kind == EventKind::kCallBegin || e.kind == EventKind::kCallEnd) {
        out += "\x01" + std::to_string(kind) + ":" + std::to_string(e.call) + ":";
      }
      out += e.text;
      last_kind = kind;
      last_call = e.call;
    }
  };
  for (size_t pos = 0; pos < text.size(); pos += cut) add(parser.push(text.substr(pos, cut)));
  add(parser.finish(cause));
  for (const ParsedCall& call : parser.result().calls) {
    // Arguments of a complete call are JSON whenever the text was UTF-8.
    if (call.complete && utf8_lossy(call.arguments) == call.arguments) {
      DSF_CHECK(dsf::json::parse(call.arguments, "arguments", {.reject_duplicate_keys = false}), "complete arguments are not JSON");
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const ParserOptions options = options_of(data[0], data[1]);
  const auto cause = static_cast<EndCause>(data[2] % 3);
  const std::string_view text(reinterpret_cast<const char*>(data) + 4, size - 4);
  const std::string whole = transcript(options, text, text.size() + 1, cause);
  for (const size_t cut : {size_t{1}, size_t{1} + data[3] % 37}) DSF_CHECK(transcript(options, text, cut, cause) == whole, "the cut shows");
  return 0;
}
