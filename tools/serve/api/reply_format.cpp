#include "tools/serve/api/reply_format.h"

#include <array>
#include <optional>

namespace dsf::serve {
namespace {

ApiResult<ReplyFormat> of_schema(const json::Value& schema, const std::string& path) {
  ReplyFormat out;
  DSF_API_FROM(out.grammar, grammar::of_schema(schema, path));
  out.json = true;
  return out;
}

ApiResult<ReplyFormat> of_any_object() {
  ReplyFormat out;
  DSF_API_FROM(out.grammar, grammar::any_object());
  out.json = true;
  return out;
}

// vLLM takes a schema as an object or as its text.
ApiResult<ReplyFormat> of_schema_or_text(const json::Value& value, const std::string& path) {
  if (!value.is_string()) return of_schema(value, path);
  const auto schema = json::parse(value.as_string(), path);
  if (!schema) return refuse(path + " is not JSON (" + schema.error().what + ")", path);
  return of_schema(*schema, path);
}

ApiResult<ReplyFormat> of_regex(const Fields& fields, std::string_view key) {
  ReplyFormat out;
  DSF_API_TRY(const auto pattern, fields.string(key));
  DSF_API_FROM(out.grammar, grammar::of_regex(pattern.value_or(""), fields.path(key)));
  return out;
}

ApiResult<ReplyFormat> of_choice(const Fields& fields, std::string_view key) {
  ReplyFormat out;
  DSF_API_TRY(const auto texts, fields.strings(key));
  DSF_API_FROM(out.grammar, grammar::of_texts(texts, fields.path(key)));
  return out;
}

ApiResult<ReplyFormat> unsupported(const Fields& fields, std::string_view key) {
  return refuse(fields.path(key) + " is not supported on this server", fields.path(key), "unsupported_value");
}

ApiResult<ReplyFormat> of_response_format(const json::Value& format) {
  const Fields fields(format, "response_format.");
  DSF_API_TRY(const auto type, fields.string("type"));
  if (!type) return refuse("response_format.type is required", "response_format.type");
  if (*type == "text") return ReplyFormat{};
  if (*type == "json_object") return of_any_object();
  if (*type != "json_schema") {
    return refuse("response_format.type must be text, json_object or json_schema (got " + *type + ")",
                  "response_format.type");
  }
  DSF_API_TRY(const json::Value* wrapper, fields.object("json_schema"));
  const json::Value* schema = wrapper == nullptr ? nullptr : wrapper->find("schema");
  if (schema == nullptr || !schema->is_object())
    return refuse("response_format.json_schema.schema must be an object", "response_format.json_schema");
  DSF_API_TRY(ReplyFormat out, of_schema(*schema, "response_format.json_schema.schema"));
  out.prompt_schema = schema;
  return out;
}

ApiResult<ReplyFormat> of_structured_outputs(const json::Value& outputs) {
  const Fields fields(outputs, "structured_outputs.");
  std::optional<ReplyFormat> out;
  for (const auto& [key, value] : outputs.as_object()) {
    if (value.is_null() || (value.is_bool() && !value.as_bool())) continue;
    if (out) return refuse("structured_outputs must hold one format only", "structured_outputs");
    if (key == "json") {
      DSF_API_TRY(out, of_schema_or_text(value, fields.path(key)));
    } else if (key == "json_object") {
      DSF_API_TRY(out, of_any_object());
    } else if (key == "regex") {
      DSF_API_TRY(out, of_regex(fields, key));
    } else if (key == "choice") {
      DSF_API_TRY(out, of_choice(fields, key));
    } else {
      return unsupported(fields, key);
    }
  }
  return out.value_or(ReplyFormat{});
}

ApiResult<ReplyFormat> of_field(const Fields& fields, std::string_view key) {
  if (key == "guided_json") return of_schema_or_text(*fields.find(key), std::string(key));
  if (key == "guided_regex") return of_regex(fields, key);
  if (key == "guided_choice") return of_choice(fields, key);
  if (key == "guided_grammar") return unsupported(fields, key);
  DSF_API_TRY(const json::Value* object, fields.object(key));
  return key == "response_format" ? of_response_format(*object) : of_structured_outputs(*object);
}

}  // namespace

ApiResult<ReplyFormat> parse_reply_format(const Fields& fields) {
  static constexpr std::array<std::string_view, 6> kKeys{"response_format", "structured_outputs", "guided_json",
                                                         "guided_regex",    "guided_choice",      "guided_grammar"};
  ReplyFormat out;
  std::string_view chosen;
  for (const std::string_view key : kKeys) {
    if (fields.find(key) == nullptr) continue;
    DSF_API_TRY(ReplyFormat format, of_field(fields, key));
    if (format.grammar == nullptr) continue;
    if (!chosen.empty())
      return refuse(std::string(key) + " and " + std::string(chosen) + " cannot both be given", std::string(key));
    chosen = key;
    out = std::move(format);
  }
  return out;
}

}  // namespace dsf::serve
