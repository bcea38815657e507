#pragma once
// Tool declarations and tool choice of a chat request, checked once; the prompt declares them and the output parser types values by them.
//
// Plain values, any thread. Errors are kUsage with the request path ("tools[1].function.name") as subject: a server answers 400 with it.
// Source: serving.md 2.3, 4.5.
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"

namespace dsf::tokenizer {

struct Tool {
  std::string name;
  json::Value function;  // the function object as received: key order kept, unknown keys kept, the "type" wrapper dropped

  // The schema of one parameter, or nullptr when the tool does not declare it.
  const json::Value* parameter(std::string_view key) const;
};

// tools: the request's array; null gives none. Refuses: not an array, no name, two of one name, parameters that are not an object.
Result<std::vector<Tool>> parse_tools(const json::Value& tools, std::string_view path = "tools");

enum class ToolMode { kNone, kAuto, kRequired, kNamed };
struct ToolChoice {
  ToolMode mode = ToolMode::kNone;
  std::string name;  // of kNamed
};
// choice: the request's tool_choice; null means auto with tools, none without. Refuses a choice other than none/auto without tools, and
// an undeclared name.
Result<ToolChoice> parse_tool_choice(const json::Value& choice, const std::vector<Tool>& tools);

}  // namespace dsf::tokenizer
