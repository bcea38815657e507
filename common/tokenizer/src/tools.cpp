#include "dsf/tokenizer/tools.h"

#include <algorithm>

namespace dsf::tokenizer {
namespace {

using json::Value;

Unexpected refuse(std::string subject, std::string what) {
  return fail(Code::kUsage, std::move(subject), std::move(what), {}, "invalid_request");
}

bool absent(const Value* v) { return v == nullptr || v->is_null(); }
bool declared(const std::vector<Tool>& tools, std::string_view name) { return std::ranges::find(tools, name, &Tool::name) != tools.end(); }

}  // namespace

const Value* Tool::parameter(std::string_view key) const {
  const Value* parameters = function.find("parameters");
  const Value* properties = parameters == nullptr ? nullptr : parameters->find("properties");
  return properties == nullptr ? nullptr : properties->find(key);
}

Result<std::vector<Tool>> parse_tools(const Value& tools, std::string_view path) {
  std::vector<Tool> out;
  if (tools.is_null()) return out;
  if (!tools.is_array()) return refuse(std::string(path), "must be an array");
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Value& item = tools.as_array()[i];
    std::string here = std::string(path) + "[" + std::to_string(i) + "]";
    const Value* function = item.find("function");
    if (function != nullptr) {
      here += ".function";
    } else {
      function = &item;  // the wrapper left out
    }
    if (!function->is_object()) return refuse(here, "must be an object");
    const Value* name = function->find("name");
    if (absent(name) || !name->is_string() || name->as_string().empty()) return refuse(here + ".name", "must be a non-empty string");
    if (declared(out, name->as_string())) return refuse(here + ".name", "\"" + name->as_string() + "\" is declared twice");
    const Value* parameters = function->find("parameters");
    if (!absent(parameters) && !parameters->is_object()) return refuse(here + ".parameters", "must be an object");
    out.push_back({name->as_string(), *function});
  }
  return out;
}

Result<ToolChoice> parse_tool_choice(const Value& choice, const std::vector<Tool>& tools) {
  if (choice.is_null()) return ToolChoice{tools.empty() ? ToolMode::kNone : ToolMode::kAuto, {}};
  if (choice == Value("none")) return ToolChoice{ToolMode::kNone, {}};
  ToolChoice out;
  if (choice == Value("auto")) {
    out.mode = ToolMode::kAuto;
  } else if (choice == Value("required")) {
    out.mode = ToolMode::kRequired;
  } else {
    const Value* function = choice.find("function");
    const Value* name = function == nullptr ? nullptr : function->find("name");
    if (absent(name) || !name->is_string()) {
      return refuse("tool_choice", "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": NAME}}");
    }
    out = {ToolMode::kNamed, name->as_string()};
  }
  if (tools.empty()) return refuse("tool_choice", "needs tools");
  if (out.mode == ToolMode::kNamed && !declared(tools, out.name)) {
    return refuse("tool_choice.function.name", "\"" + out.name + "\" is not one of the declared tools");
  }
  return out;
}

}  // namespace dsf::tokenizer
