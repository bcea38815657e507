// A chat request's messages and tools: any JSON gives a prompt or an error, and user text brings no control marker of its own.
#include <cstdint>
#include <string_view>

#include "dsf/base/check.h"
#include "dsf/json/json.h"
#include "dsf/tokenizer/prompt.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsf::tokenizer;
  const auto request = dsf::json::parse({reinterpret_cast<const char*>(data), size}, "fuzz", {.reject_duplicate_keys = false});
  if (!request) return 0;
  const auto thinking = thinking_of_request(*request, {}, EffortTable::release());
  const dsf::json::Value* choice = request->find("tool_choice");
  if (const dsf::json::Value* tools = request->find("tools")) {
    if (const auto parsed = parse_tools(*tools)) (void)parse_tool_choice(choice == nullptr ? dsf::json::Value() : *choice, *parsed);
  }
  PromptOptions options{.thinking = thinking ? *thinking : Thinking{}};
  options.continue_final_message = request->find("continue_final_message") != nullptr;
  options.developer = request->find("model") != nullptr ? DeveloperRole::kUser : DeveloperRole::kSystem;
  const auto prompt = render_prompt({request->find("messages"), request->find("tools"), request->find("response_format")}, options);
  if (!prompt) {
    DSF_CHECK(!prompt.error().subject.empty() && !prompt.error().what.empty(), "an error without words");
    return 0;
  }
  size_t images = 0, bos = 0;
  for (const Segment& s : prompt->segments) {
    images += s.control == Control::kImage ? 1 : 0;
    bos += s.control == Control::kBos ? 1 : 0;
    DSF_CHECK((s.control == Control::kText) == !s.text.empty(), "a segment is a marker or text");
  }
  DSF_CHECK(images == prompt->images.size() && bos == 1, "markers out of nowhere");
  return 0;
}
