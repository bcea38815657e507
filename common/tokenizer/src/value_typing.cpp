#include "value_typing.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "dsf/base/numeric.h"

namespace dsf::tokenizer {
namespace {

using json::Value;
constexpr unsigned kAnyType = 127;

unsigned type_named(std::string_view name) {
  if (name == "null") return kNullType;
  if (name == "boolean") return kBooleanType;
  if (name == "number") return kNumberType | kIntegerType;
  if (name == "integer") return kIntegerType;
  if (name == "string") return kStringType;
  if (name == "array") return kArrayType;
  if (name == "object") return kObjectType;
  return 0;
}

unsigned type_of(const Value& v) {
  if (v.is_null()) return kNullType;
  if (v.is_bool()) return kBooleanType;
  if (v.is_integer()) return kIntegerType;
  if (v.is_number()) return std::floor(*v.to_double()) == *v.to_double() ? kNumberType | kIntegerType : kNumberType;
  if (v.is_string()) return kStringType;
  return v.is_array() ? kArrayType : kObjectType;
}

std::optional<unsigned> types_in(const Value& type) {
  if (type.is_string()) {
    const unsigned t = type_named(type.as_string());
    return t == 0 ? std::nullopt : std::optional(t);
  }
  if (!type.is_array()) return std::nullopt;
  unsigned out = 0;
  for (const Value& name : type.as_array()) {
    const unsigned t = name.is_string() ? type_named(name.as_string()) : 0;
    if (t == 0) return std::nullopt;
    out |= t;
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Spellings of numbers that JSON does not have: +3, 007, .5, 5. (but no NaN, no infinity, no hexadecimal).
std::optional<std::string> read_number(std::string_view text, unsigned types) {
  std::string sign;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    if (text[0] == '-') sign = "-";
    text.remove_prefix(1);
  }
  if (text.empty() || !(std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.')) return std::nullopt;
  if (text.find_first_not_of("0123456789") == std::string_view::npos) {
    if (!(types & kIntegerType)) return std::nullopt;
    text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
    return text == "0" ? "0" : sign + std::string(text);
  }
  const auto d = parse_double(text);
  if (!d || !std::isfinite(*d) || !(types & type_of(Value(*d)))) return std::nullopt;
  return json::format_double(sign.empty() ? *d : -*d);
}

std::optional<std::string> read_word(std::string_view text, unsigned types) {
  if (text.size() <= 5) {
    const std::string word = lower(text);
    if ((types & kBooleanType) && (word == "true" || word == "false")) return word;
    if ((types & kNullType) && (word == "null" || word == "none")) return "null";
  }
  return read_number(text, types);
}

// The text with what closes its open brackets appended; nullopt when it ends in a string or its brackets cross.
std::optional<std::string> close_brackets(std::string_view text) {
  std::string closers;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      closers += c == '{' ? '}' : ']';
    } else if (c == '}' || c == ']') {
      if (closers.empty() || closers.back() != c) return std::nullopt;
      closers.pop_back();
    }
  }
  if (in_string || closers.empty()) return std::nullopt;
  std::ranges::reverse(closers);
  return std::string(text) + closers;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<Value> parse_strict(std::string_view text) {
  auto value = json::parse(text, "value", {.reject_duplicate_keys = false});
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

std::optional<unsigned> allowed_types(const Value* schema) {
  if (schema == nullptr || !schema->is_object()) return std::nullopt;
  if (const Value* type = schema->find("type")) return types_in(*type);
  if (const Value* constant = schema->find("const")) return type_of(*constant);
  const Value* list = schema->find("enum");
  const bool is_enum = list != nullptr;
  for (const char* key : {"anyOf", "oneOf"}) {
    if (list == nullptr) list = schema->find(key);
  }
  if (list == nullptr || !list->is_array() || list->as_array().empty()) return std::nullopt;
  unsigned out = 0;
  for (const Value& item : list->as_array()) {
    const auto types = is_enum ? std::optional(type_of(item)) : allowed_types(&item);
    if (!types) return std::nullopt;
    out |= *types;
  }
  return out;
}

TypedValue type_string(std::string_view text, const Value* schema) {
  const auto types = allowed_types(schema);
  if (types && !(*types & kStringType)) {
    const std::string_view body = trim(text);
    if (const auto value = parse_strict(body); value && (type_of(*value) & *types)) return {std::string(body), true};
    if (auto word = read_word(body, *types)) return {std::move(*word), true};
  }
  return {json::quote(text), false};
}

TypedValue type_json(std::string_view text, const Value* schema) {
  const std::string_view body = trim(text);
  if (parse_strict(body)) return {std::string(body), false};
  if (auto closed = close_brackets(body); closed && parse_strict(*closed)) return {std::move(*closed), true};
  if (auto word = read_word(body, allowed_types(schema).value_or(kAnyType))) return {std::move(*word), true};
  return {json::quote(text), true};
}

}  // namespace dsf::tokenizer
