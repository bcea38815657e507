// The prompt's grammar (serving.md 2.2 to 2.6).
#include "dsf/base/check.h"
#include "messages.h"
#include "segment_builder.h"

namespace dsf::tokenizer {
namespace {

using json::Style;
using json::Value;

constexpr std::string_view kToolsBefore = R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsAfter =
    "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
constexpr std::string_view kResponseFormat = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
constexpr std::string_view kCallsOpen = "\n\n<｜DSML｜ calls>\n";

// The object a call's arguments stand for; nullopt when they stand for none. Clients send a string, sometimes encoded twice.
std::optional<Value> arguments_object(const Value& arguments) {
  Value value = arguments;
  for (int i = 0; i < 2 && value.is_string(); ++i) {
    auto parsed = json::parse(value.as_string(), "arguments", {.reject_duplicate_keys = false});
    if (!parsed) return std::nullopt;
    value = std::move(*parsed);
  }
  if (!value.is_object()) return std::nullopt;
  return value;
}

bool blank(const Value& arguments) {
  return arguments.is_null() || (arguments.is_string() && arguments.as_string().find_first_not_of(" \t\r\n") == std::string::npos);
}

void render_parameter(SegmentBuilder& out, std::string_view key, const Value& value) {
  out.markup("<｜DSML｜ parameter name=\"");
  out.text(key);
  out.text(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
  out.text(value.is_string() ? value.as_string() : json::dump(value, Style::kPython));
  out.markup("</｜DSML｜ parameter>");
}

Result<void> render_invoke(SegmentBuilder& out, const Value& call, const std::string& path) {
  const Value* function = call.find("function");
  if (function == nullptr) function = &call;
  const Value* name = function->find("name");
  if (name == nullptr || !name->is_string()) return bad_request(path + ".function.name", "must be a string");
  const Value* given = function->find("arguments");
  const Value arguments = given == nullptr || blank(*given) ? Value::object() : *given;

  out.markup("<｜DSML｜ invoke name=\"");
  out.text(name->as_string());
  out.text("\">\n");
  if (const auto object = arguments_object(arguments)) {
    bool first = true;
    for (const auto& [key, value] : object->as_object()) {
      if (!first) out.text("\n");
      first = false;
      render_parameter(out, key, value);
    }
  } else {
    render_parameter(out, "arguments", arguments.is_string() ? arguments : Value(json::dump(arguments, Style::kPython)));
  }
  out.markup("\n</｜DSML｜ invoke>");
  return {};
}

class Renderer {
 public:
  Renderer(const Conversation& conversation, const PromptOptions& options)
      : messages_(conversation.messages),
        options_(options),
        thinking_(options.thinking.on),
        drop_(options.drop_thinking && !conversation.any_tools),
        last_user_(conversation.last_user) {}

  Result<RenderedPrompt> render() {
    DSF_CHECK(!thinking_ || (options_.thinking.effort >= 1 && options_.thinking.effort <= 100), "effort outside 1..100");
    out_.control(Control::kBos);
    if (thinking_) {
      out_.control(Control::kSystem);
      out_.text("Reasoning Effort: " + std::to_string(options_.thinking.effort) +
                " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
    } else if (messages_[0].role == Role::kSystem) {
      out_.control(Control::kSystem);
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      DSF_OK(turn(i));
      transition(i);
    }
    ending();
    prompt_.segments = out_.take();
    return std::move(prompt_);
  }

 private:
  bool reasons(ptrdiff_t index, bool at_last) const { return thinking_ && (!drop_ || index > last_user_ || (at_last && index == last_user_)); }

  Result<void> turn(size_t i) {
    const Message& m = messages_[i];
    switch (m.role) {
      case Role::kSystem:
        if (i > 0) out_.control(Control::kSystem);
        instructions(m);
        return {};
      case Role::kDeveloper:
        out_.control(Control::kUser);
        instructions(m);
        return {};
      case Role::kReminder:
        out_.control(Control::kReminder);
        out_.text(m.content);
        return {};
      case Role::kUser: user(m); return {};
      case Role::kAssistant: return assistant(i);
    }
    return {};
  }

  void instructions(const Message& m) {
    out_.text(m.content);
    if (!m.tools.empty()) {
      out_.text("\n\n");
      out_.markup(kToolsBefore);
      for (const Tool& tool : m.tools) out_.text(json::dump(tool.function, Style::kPython) + "\n");
      out_.markup(kToolsAfter);
    }
    if (m.response_schema != nullptr) {
      out_.text("\n\n");
      out_.text(kResponseFormat);
      out_.text(json::dump(*m.response_schema, Style::kPython));
    }
  }

  void pieces(const std::vector<Piece>& pieces) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) out_.text("\n\n");
      if (pieces[i].image != nullptr) {
        out_.control(Control::kImage);
        prompt_.images.push_back(*pieces[i].image);
      } else {
        out_.text(pieces[i].text);
      }
    }
  }

  void user(const Message& m) {
    out_.control(Control::kUser);
    for (size_t i = 0; i < m.blocks.size(); ++i) {
      const Block& block = m.blocks[i];
      if (i > 0) out_.text("\n\n");
      if (block.tool_result) out_.text("<tool_result>");
      pieces(block.pieces);
      if (block.tool_result) out_.text("</tool_result>");
    }
  }

  Result<void> assistant(size_t i) {
    const Message& m = messages_[i];
    const bool after_task = i > 0 && messages_[i - 1].task != Control::kText;
    const bool shows_reasoning = !after_task && reasons(static_cast<ptrdiff_t>(i), false);
    // A continued message without an answer yet stays inside its reasoning.
    const bool stays_in_reasoning = m.open && shows_reasoning && m.content.empty() && m.calls == nullptr;
    if (shows_reasoning) {
      out_.text(m.reasoning);
      if (!stays_in_reasoning) out_.control(Control::kThinkClose);
    }
    out_.text(m.content);
    if (m.calls != nullptr) {
      DSF_TRY(auto calls, render_calls(*m.calls, m.calls_path));
      out_.append(std::move(calls));
    }
    if (m.open) {
      prompt_.open_reasoning = stays_in_reasoning;
      prompt_.continues_text = !(stays_in_reasoning ? m.reasoning : m.content).empty();
    } else {
      out_.control(Control::kEos);
      prompt_.open_reasoning = false;
    }
    turn_is_open_ = m.open;
    return {};
  }

  void header(bool thinks) {
    out_.control(Control::kAssistant);
    out_.control(thinks ? Control::kThinkOpen : Control::kThinkClose);
    prompt_.open_reasoning = thinks;
    turn_is_open_ = true;
  }

  // What stands between turn i and the next.
  void transition(size_t i) {
    const Message& m = messages_[i];
    const bool last = i + 1 == messages_.size();
    if (!last && messages_[i + 1].role != Role::kAssistant && messages_[i + 1].role != Role::kReminder) return;
    if (m.task != Control::kText) {
      if (m.task == Control::kTaskAction) header(thinking_);
      out_.control(m.task);
      prompt_.open_reasoning = false;
      turn_is_open_ = true;
      return;
    }
    const bool asks = m.role == Role::kUser || m.role == Role::kDeveloper || (m.role == Role::kSystem && i > 0);
    if (asks && !(last && !options_.add_generation_prompt)) header(reasons(static_cast<ptrdiff_t>(i), true));
  }

  // The reference opens no turn after a lone system message or a finished answer; a server has to.
  void ending() {
    if (!turn_is_open_ && options_.add_generation_prompt && !options_.reference_ending) header(thinking_);
  }

  const std::vector<Message>& messages_;
  const PromptOptions& options_;
  const bool thinking_, drop_;
  const ptrdiff_t last_user_;
  bool turn_is_open_ = false;
  SegmentBuilder out_;
  RenderedPrompt prompt_;
};

}  // namespace

Result<std::vector<Segment>> render_calls(const Value& calls, std::string_view path) {
  SegmentBuilder out;
  if (!calls.is_array()) return bad_request(std::string(path), "must be an array");
  if (calls.as_array().empty()) return out.take();
  out.markup(kCallsOpen);
  for (size_t i = 0; i < calls.as_array().size(); ++i) {
    if (i > 0) out.text("\n");
    DSF_OK(render_invoke(out, calls.as_array()[i], std::string(path) + "[" + std::to_string(i) + "]"));
  }
  out.markup("\n</｜DSML｜ calls>");
  return out.take();
}

std::vector<Segment> forced_call_prefix(std::optional<std::string_view> name) {
  SegmentBuilder out;
  out.markup(kCallsOpen);
  if (name) {
    out.markup("<｜DSML｜ invoke name=\"");
    out.text(*name);
    out.text("\">\n");
  }
  return out.take();
}

Result<RenderedPrompt> render_prompt(const PromptRequest& request, const PromptOptions& options) {
  DSF_TRY(const Conversation conversation, normalize(request, options));
  return Renderer(conversation, options).render();
}

}  // namespace dsf::tokenizer
