// Thinking mode and reasoning effort of a request (serving.md 2.5).
#include <algorithm>

#include "dsf/tokenizer/prompt.h"

namespace dsf::tokenizer {
namespace {

using json::Value;

Unexpected refuse(std::string subject, std::string what, std::string fix = {}) {
  return fail(Code::kUsage, std::move(subject), std::move(what), std::move(fix), "invalid_request");
}

// A member that is neither absent nor null.
const Value* given(const Value& object, std::string_view key) {
  const Value* v = object.find(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

// Collects the request's switches: any that says yes wins over those that say no.
struct Switches {
  bool present = false, on = false;
  void add(bool value) {
    present = true;
    on = on || value;
  }
};

Result<Switches> read_switches(const Value& request, const Value* kwargs) {
  Switches out;
  for (const char* key : {"thinking", "enable_thinking"}) {
    const Value* v = kwargs == nullptr ? nullptr : given(*kwargs, key);
    if (v == nullptr) continue;
    if (!v->is_bool()) return refuse("chat_template_kwargs." + std::string(key), "must be a boolean");
    out.add(v->as_bool());
  }
  if (const Value* thinking = given(request, "thinking")) {
    const Value* type = thinking->find("type");
    const bool enabled = type != nullptr && *type == Value("enabled");
    if (!enabled && (type == nullptr || *type != Value("disabled"))) return refuse("thinking.type", "must be \"enabled\" or \"disabled\"");
    out.add(enabled);
  }
  return out;
}

}  // namespace

EffortTable EffortTable::release() {
  return {{{"none", 0}, {"minimal", 0}, {"low", 50}, {"medium", 75}, {"high", 75}, {"xhigh", 75}, {"max", 100}}, 75};
}

Result<EffortTable> EffortTable::parse(const Value& object, std::string_view subject) {
  const json::Cursor top(object, std::string(subject), Code::kUsage);
  if (!object.is_object()) return top.fail("object expected, got " + std::string(object.type_name()));
  EffortTable out;
  out.names = {{"none", 0}};
  for (const auto& [name, value] : object.as_object()) {
    DSF_TRY(const int64_t n, top.integer_at(name, name == "default" ? 1 : 0, 100));
    if (name == "default") {
      out.fallback = static_cast<int>(n);
    } else if (name != "none") {
      out.names.emplace_back(name, static_cast<int>(n));
    } else if (n != 0) {
      return top.fail("none: always 0, it switches thinking off");
    }
  }
  return out;
}

Result<Thinking> parse_effort(const Value& effort, const EffortTable& table) {
  if (effort.is_string()) {
    const auto it = std::ranges::find(table.names, effort.as_string(), &std::pair<std::string, int>::first);
    if (it != table.names.end()) return Thinking{it->second > 0, it->second > 0 ? it->second : table.fallback};
  } else if (const auto n = effort.to_i64(); effort.is_integer() && n && *n >= 1 && *n <= 100) {
    return Thinking{true, static_cast<int>(*n)};
  }
  std::string names;
  for (const auto& [name, value] : table.names) names += name + ", ";
  return refuse("reasoning_effort", "must be one of " + names + "or an integer from 1 to 100");
}

Result<Thinking> thinking_of_request(const Value& request, const Thinking& server_default, const EffortTable& table) {
  const Value* kwargs = given(request, "chat_template_kwargs");
  if (kwargs != nullptr && !kwargs->is_object()) return refuse("chat_template_kwargs", "must be an object");
  DSF_TRY(const Switches switches, read_switches(request, kwargs));
  const Value* effort = given(request, "reasoning_effort");
  if (effort == nullptr && kwargs != nullptr) effort = given(*kwargs, "reasoning_effort");

  Thinking out = server_default;
  if (effort != nullptr) {
    DSF_TRY(out, parse_effort(*effort, table));
    if (!out.on) return out;
  }
  if (switches.present) out.on = switches.on;
  return out;
}

}  // namespace dsf::tokenizer
