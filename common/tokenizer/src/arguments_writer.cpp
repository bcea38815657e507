#include "arguments_writer.h"

#include <algorithm>

#include "value_typing.h"

namespace dsf::tokenizer {
namespace {

const json::Value* properties_of(const Tool* tool) {
  const json::Value* parameters = tool == nullptr ? nullptr : tool->function.find("parameters");
  const json::Value* properties = parameters == nullptr ? nullptr : parameters->find("properties");
  return properties != nullptr && properties->is_object() && !properties->as_object().empty() ? properties : nullptr;
}

const json::Value* schema_of(const Tool* tool, std::string_view key) { return tool == nullptr ? nullptr : tool->parameter(key); }

// Escaped as in a JSON string, without the quotes. Works piece by piece: no escape spans two bytes of the input.
std::string escaped(std::string_view text) {
  const std::string quoted = json::quote(text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

bool ArgumentsWriter::may_be_wrapper(std::string_view key) const {
  if (key != "arguments" && key != "input") return false;
  const json::Value* properties = properties_of(tool_);
  return n_members_ == 0 && !wrapper_ && properties != nullptr && properties->find(key) == nullptr;
}

std::string ArgumentsWriter::name_of(const std::string& key) { return (n_members_++ == 0 ? "{" : ", ") + json::quote(key) + ": "; }

std::string ArgumentsWriter::member(const Kept& kept) {
  const json::Value* schema = schema_of(tool_, kept.key);
  TypedValue value = kept.is_string ? type_string(kept.text, schema) : type_json(kept.text, schema);
  repaired_ += value.repaired ? 1 : 0;
  return name_of(kept.key) + value.json;
}

std::string ArgumentsWriter::begin(std::string key, bool is_string) {
  std::string out;
  if (wrapper_) {
    out = member(*wrapper_);
    wrapper_.reset();
  }
  const auto types = allowed_types(schema_of(tool_, key));
  const bool stays_string = is_string && (!types || (*types & kStringType)) && !may_be_wrapper(key);
  mode_ = stays_string ? Mode::kStream : Mode::kKeep;
  current_ = {std::move(key), {}, is_string};
  if (mode_ == Mode::kStream) out += name_of(current_.key) + "\"";
  return out;
}

std::string ArgumentsWriter::piece(std::string_view text) {
  if (mode_ == Mode::kStream) return escaped(text);
  current_.text += text;
  return {};
}

std::string ArgumentsWriter::end() {
  if (mode_ == Mode::kStream) return "\"";
  if (may_be_wrapper(current_.key)) {
    wrapper_ = std::move(current_);
    return {};
  }
  return member(current_);
}

std::optional<std::string> ArgumentsWriter::unwrapped(const Kept& kept) const {
  const json::Value* properties = properties_of(tool_);
  std::string text(trim(kept.text));
  auto value = parse_strict(text);
  if (value && value->is_string()) {
    text = trim(value->as_string());
    value = parse_strict(text);
  }
  if (!value || !value->is_object() || value->as_object().empty()) return std::nullopt;
  const bool all_declared =
      std::ranges::all_of(value->as_object(), [&](const json::Member& m) { return properties->find(m.first) != nullptr; });
  return all_declared ? std::optional(std::move(text)) : std::nullopt;
}

std::string ArgumentsWriter::close() {
  if (wrapper_) {
    if (auto object = unwrapped(*wrapper_)) {
      ++repaired_;
      return std::move(*object);
    }
    return member(*wrapper_) + "}";
  }
  return n_members_ == 0 ? "{}" : "}";
}

}  // namespace dsf::tokenizer
