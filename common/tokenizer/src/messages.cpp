#include "messages.h"

#include <algorithm>

namespace dsf::tokenizer {
namespace {

using json::Value;

const Value* given(const Value& object, std::string_view key) {
  const Value* v = object.find(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

bool is_text_type(std::string_view type) { return type == "text" || type == "input_text" || type == "output_text"; }
bool is_image_type(std::string_view type) { return type == "image_url" || type == "input_image" || type == "image"; }

// A part's type; a bare string is text.
Result<std::string> part_type(const Value& part, const std::string& path) {
  if (part.is_string()) return std::string("text");
  const Value* type = given(part, "type");
  if (type == nullptr || !type->is_string()) return bad_request(path + ".type", "must be a string");
  return type->as_string();
}

Result<std::string> part_text(const Value& part, const std::string& path) {
  if (part.is_string()) return part.as_string();
  const Value* text = given(part, "text");
  if (text == nullptr || !text->is_string()) return bad_request(path + ".text", "must be a string");
  return text->as_string();
}

std::string element(const std::string& path, size_t i) { return path + "[" + std::to_string(i) + "]"; }

// What a tool answered: a string, nothing, or parts. Unknown parts are named to the model, which may know what to do without them.
Result<std::vector<Piece>> tool_content(const Value* content, const std::string& path) {
  std::vector<Piece> out;
  if (content == nullptr) return out;
  if (content->is_string()) return std::vector<Piece>{{content->as_string(), nullptr}};
  if (!content->is_array()) return bad_request(path, "must be a string or an array of parts");
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Value& part = content->as_array()[i];
    DSF_TRY(const std::string type, part_type(part, element(path, i)));
    if (is_image_type(type)) {
      out.push_back({{}, &part});
    } else if (is_text_type(type)) {
      DSF_TRY(std::string text, part_text(part, element(path, i)));
      out.push_back({std::move(text), nullptr});
    } else {
      out.push_back({"[Unsupported " + type + "]", nullptr});
    }
  }
  return out;
}

Result<std::string> string_member(const Value& object, std::string_view key, const std::string& path) {
  const Value* v = given(object, key);
  if (v == nullptr) return std::string();
  if (!v->is_string()) return bad_request(path + "." + std::string(key), "must be a string");
  return v->as_string();
}

Result<std::vector<Block>> user_blocks(const Value* content, const std::string& path) {
  if (content == nullptr) return std::vector<Block>{{false, {}, {{{}, nullptr}}}};
  if (content->is_string()) return std::vector<Block>{{false, {}, {{content->as_string(), nullptr}}}};
  if (!content->is_array()) return bad_request(path, "must be a string or an array of parts");
  std::vector<Block> out;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Value& part = content->as_array()[i];
    const std::string here = element(path, i);
    DSF_TRY(const std::string type, part_type(part, here));
    Block block;
    if (is_text_type(type)) {
      DSF_TRY(std::string text, part_text(part, here));
      block.pieces.push_back({std::move(text), nullptr});
    } else if (is_image_type(type)) {
      block.pieces.push_back({{}, &part});
    } else if (type == "tool_result") {
      block.tool_result = true;
      DSF_TRY(block.id, string_member(part, "tool_use_id", here));
      DSF_TRY(block.pieces, tool_content(given(part, "content"), here + ".content"));
    } else {
      return bad_request(here, "part type \"" + type + "\" is not supported: text and image content only");
    }
    out.push_back(std::move(block));
  }
  return out;
}

// Content of system, developer, assistant and reminder messages: text parts joined by blank lines.
Result<std::string> plain_content(const Value* content, const std::string& path) {
  if (content == nullptr) return std::string();
  if (content->is_string()) return content->as_string();
  if (!content->is_array()) return bad_request(path, "must be a string or an array of parts");
  std::string out;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Value& part = content->as_array()[i];
    DSF_TRY(const std::string type, part_type(part, element(path, i)));
    if (!is_text_type(type)) return bad_request(element(path, i), "part type \"" + type + "\" is not supported here: text content only");
    DSF_TRY(const std::string text, part_text(part, element(path, i)));
    if (i > 0) out += "\n\n";
    out += text;
  }
  return out;
}

Result<Control> read_task(const Value& message, const std::string& path) {
  DSF_TRY(const std::string name, string_member(message, "task", path));
  if (name.empty()) return Control::kText;
  for (int i = static_cast<int>(Control::kTaskAction); i < kControlCount; ++i) {
    const auto task = static_cast<Control>(i);
    if (control_text(task) == "<｜" + name + "｜>") return task;
  }
  return bad_request(path + ".task", "\"" + name + "\" is not a task");
}

// The message before merging; a "tool" message is a user message of one tool result.
Result<Message> read_message(const Value& value, const std::string& path, const PromptOptions& options) {
  if (!value.is_object()) return bad_request(path, "must be an object");
  DSF_TRY(std::string role, string_member(value, "role", path));
  const Value* content = given(value, "content");
  Message m;
  if (role == "user" || role == "tool" || role == "function") {
    if (role == "user") {
      DSF_TRY(m.blocks, user_blocks(content, path + ".content"));
      DSF_TRY(m.task, read_task(value, path));
    } else {
      Block block{true, {}, {}};
      DSF_TRY(block.id, string_member(value, "tool_call_id", path));
      DSF_TRY(block.pieces, tool_content(content, path + ".content"));
      m.blocks.push_back(std::move(block));
    }
    return m;
  }
  DSF_TRY(m.content, plain_content(content, path + ".content"));
  if (role == "system" || role == "developer") {
    m.role = role == "developer" && options.developer == DeveloperRole::kUser ? Role::kDeveloper : Role::kSystem;
    if (const Value* tools = given(value, "tools")) {
      DSF_TRY(m.tools, parse_tools(*tools, path + ".tools"));
    }
    m.response_schema = given(value, "response_format");
    if (m.role == Role::kDeveloper) {
      DSF_TRY(m.task, read_task(value, path));
    }
  } else if (role == "assistant") {
    m.role = Role::kAssistant;
    DSF_TRY(m.reasoning, string_member(value, given(value, "reasoning") != nullptr ? "reasoning" : "reasoning_content", path));
    m.calls = given(value, "tool_calls");
    m.calls_path = path + ".tool_calls";
    if (m.calls != nullptr && !m.calls->is_array()) return bad_request(m.calls_path, "must be an array");
    if (m.calls != nullptr && m.calls->as_array().empty()) m.calls = nullptr;
    m.open = value.find("prefix") != nullptr && *value.find("prefix") == Value(true);
    m.open = m.open || (value.find("wo_eos") != nullptr && *value.find("wo_eos") == Value(true));
  } else if (role == "latest_reminder") {
    m.role = Role::kReminder;
  } else {
    return bad_request(path + ".role", role.empty() ? "must be a non-empty string" : "\"" + role + "\" is not a role");
  }
  return m;
}

// Tools and schema of the request go to the first system message; without one, to an empty one in front.
void attach(std::vector<Message>& messages, std::vector<Tool> tools, const Value* schema) {
  if (tools.empty() && schema == nullptr) return;
  auto system = std::ranges::find(messages, Role::kSystem, &Message::role);
  if (system == messages.end()) {
    system = messages.insert(messages.begin(), Message{});
    system->role = Role::kSystem;
  }
  if (!tools.empty()) system->tools = std::move(tools);
  if (schema != nullptr) system->response_schema = schema;
}

std::vector<Message> merge_user_turns(std::vector<Message> messages) {
  std::vector<Message> out;
  for (Message& m : messages) {
    if (m.role == Role::kUser && !out.empty() && out.back().role == Role::kUser && out.back().task == Control::kText) {
      std::ranges::move(m.blocks, std::back_inserter(out.back().blocks));
      out.back().task = m.task;
    } else {
      out.push_back(std::move(m));
    }
  }
  return out;
}

std::vector<std::string> call_ids(const Value& calls) {
  std::vector<std::string> out;
  for (const Value& call : calls.as_array()) {
    const Value* id = call.find("id");
    out.push_back(id != nullptr && id->is_string() ? id->as_string() : std::string());
  }
  if (std::ranges::all_of(out, &std::string::empty)) out.clear();
  return out;
}

// Tool results take the order of the calls they answer; text blocks keep their places.
void sort_tool_results(Message& turn, const std::vector<std::string>& ids) {
  std::vector<Block> results;
  for (const Block& b : turn.blocks) {
    if (b.tool_result) results.push_back(b);
  }
  if (results.size() < 2 || ids.empty()) return;
  const auto rank = [&](const Block& b) {
    const auto it = std::ranges::find(ids, b.id);
    return it == ids.end() ? ptrdiff_t{0} : it - ids.begin();
  };
  std::ranges::stable_sort(results, {}, rank);
  size_t next = 0;
  for (Block& b : turn.blocks) {
    if (b.tool_result) b = std::move(results[next++]);
  }
}

}  // namespace

Unexpected bad_request(std::string path, std::string what) {
  return fail(Code::kUsage, std::move(path), std::move(what), {}, "invalid_request");
}

Result<Conversation> normalize(const PromptRequest& request, const PromptOptions& options) {
  if (request.messages == nullptr || !request.messages->is_array() || request.messages->as_array().empty()) {
    return bad_request("messages", "must be a non-empty list");
  }
  std::vector<Message> messages;
  for (size_t i = 0; i < request.messages->as_array().size(); ++i) {
    DSF_TRY(Message m, read_message(request.messages->as_array()[i], element("messages", i), options));
    messages.push_back(std::move(m));
  }
  std::vector<Tool> tools;
  if (request.tools != nullptr) {
    DSF_TRY(tools, parse_tools(*request.tools));
  }
  const Value* schema = request.response_schema;
  if (schema != nullptr && schema->is_null()) schema = nullptr;
  attach(messages, std::move(tools), schema);

  Conversation out;
  out.messages = merge_user_turns(std::move(messages));
  std::vector<std::string> ids;
  for (size_t i = 0; i < out.messages.size(); ++i) {
    Message& m = out.messages[i];
    if (m.calls != nullptr) ids = call_ids(*m.calls);
    if (m.role == Role::kUser) sort_tool_results(m, ids);
    out.any_tools = out.any_tools || !m.tools.empty();
    const bool asks = m.role == Role::kUser || m.role == Role::kDeveloper || (m.role == Role::kSystem && i > 0);
    if (asks) out.last_user = static_cast<ptrdiff_t>(i);
    m.open = m.open && i + 1 == out.messages.size();
  }
  Message& last = out.messages.back();
  if (options.continue_final_message) {
    if (last.role != Role::kAssistant) return bad_request("messages", "continue_final_message needs an assistant message at the end");
    last.open = true;
  }
  return out;
}

}  // namespace dsf::tokenizer
