#pragma once
// What a parameter's text means as JSON (serving.md 3.3).
#include <optional>
#include <string>
#include <string_view>

#include "dsf/json/json.h"

namespace dsf::tokenizer {

// JSON types that a schema allows, or-ed.
enum Type : unsigned { kNullType = 1, kBooleanType = 2, kNumberType = 4, kIntegerType = 8, kStringType = 16, kArrayType = 32, kObjectType = 64 };

// nullopt when the schema does not say, or says it in a way this reader does not follow ($ref, allOf): then everything is allowed.
std::optional<unsigned> allowed_types(const json::Value* schema);

struct TypedValue {
  std::string json;       // text of one JSON value
  bool repaired = false;  // the text was not what its tag said
};
// A string="true" value: a JSON string, unless the schema allows none and the text reads as a type that it does allow.
TypedValue type_string(std::string_view text, const json::Value* schema);
// A string="false" value: its JSON verbatim, else repaired, else a word or number the schema allows, else a JSON string.
TypedValue type_json(std::string_view text, const json::Value* schema);

// Without white space at both ends.
std::string_view trim(std::string_view text);
// Strict JSON, duplicate keys allowed.
std::optional<json::Value> parse_strict(std::string_view text);

}  // namespace dsf::tokenizer
