#include "tools/serve/grammar/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "dsf/base/numeric.h"
#include "tools/serve/grammar/decimals.h"
#include "tools/serve/grammar/formats.h"
#include "tools/serve/grammar/regex.h"

namespace dsf::serve::grammar {
namespace {

using Keys = std::set<std::string_view>;

// Keywords that say nothing about which values are valid.
const Keys kAnnotations{"title",  "description", "default",    "examples",    "example",      "$schema",
                        "$id",    "$comment",    "deprecated", "readOnly",    "writeOnly",    "$anchor",
                        "strict", "$vocabulary", "$defs",      "definitions", "discriminator"};
const Keys kGeneral{"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};
const Keys kString{"minLength", "maxLength", "pattern", "format"};
const Keys kNumber{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
const Keys kArray{"items", "prefixItems", "minItems", "maxItems"};
const Keys kObject{"properties", "required", "additionalProperties"};

bool has_any(const json::Value& schema, const Keys& keys) {
  const json::Object& members = schema.as_object();
  return std::any_of(members.begin(), members.end(), [&](const json::Member& m) { return keys.contains(m.first); });
}

bool is_of_type(const json::Value& value, std::string_view type) {
  if (type == "number") return value.is_number();
  if (type == "integer") {
    const auto number = value.to_double();
    return value.is_integer() || (number && std::nearbyint(*number) == *number);
  }
  return value.type_name() == type;
}

class Compiler {
 public:
  Compiler(Network& net, JsonRules& json, const json::Value& root, std::string path)
      : net_(net), json_(json), root_(root), root_path_(std::move(path)) {}

  Result<NodeId> rule(const json::Value& schema, const std::string& path) {
    const auto [entry, added] = rules_.try_emplace(&schema, -1);
    if (!added) return entry->second;
    const NodeId start = net_.node();
    entry->second = start;
    DSF_OK(build(schema, path, start, net_.finish()));
    return start;
  }

 private:
  static Unexpected wrong(const std::string& path, std::string_view keyword, const std::string& what) {
    return fail(Code::kUsage, path, std::string(keyword) + " " + what);
  }

  Result<void> build(const json::Value& schema, const std::string& path, NodeId from, NodeId to) {
    if (schema.is_bool()) {
      if (schema.as_bool()) net_.call(from, json_.value(), to);
      return {};
    }
    if (!schema.is_object()) return fail(Code::kUsage, path, "a schema must be an object or a boolean");
    DSF_OK(check_keywords(schema, path));
    if (const json::Value* ref = schema.find("$ref")) {
      DSF_OK(stands_alone(schema, path, "$ref", {}));
      return reference(*ref, path, from, to);
    }
    if (schema.find("const") != nullptr || schema.find("enum") != nullptr) return listed(schema, path, from, to);
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      if (const json::Value* parts = schema.find(key)) {
        DSF_OK(stands_alone(schema, path, key, {}));
        return combined(*parts, path, key, from, to);
      }
    }
    DSF_TRY(const std::vector<std::string> types, types_of(schema, path));
    if (types.empty()) net_.call(from, json_.value(), to);
    for (const std::string& type : types) DSF_OK(typed(schema, path, type, from, to));
    return {};
  }

  static Result<void> check_keywords(const json::Value& schema, const std::string& path) {
    for (const auto& [key, value] : schema.as_object()) {
      bool known = false;
      for (const Keys* keys : {&kAnnotations, &kGeneral, &kString, &kNumber, &kArray, &kObject})
        known = known || keys->contains(key);
      if (!known) return fail(Code::kUsage, path, "the schema keyword " + key + " is not supported");
    }
    return {};
  }

  // Keywords beside `key` that would narrow it further are not combined with it.
  static Result<void> stands_alone(const json::Value& schema, const std::string& path, std::string_view key,
                                   const Keys& beside) {
    for (const auto& [other, value] : schema.as_object()) {
      if (other == key || kAnnotations.contains(other) || beside.contains(other)) continue;
      return fail(Code::kUsage, path,
                  "the schema keyword " + other + " beside " + std::string(key) + " is not supported");
    }
    return {};
  }

  Result<void> reference(const json::Value& ref, const std::string& path, NodeId from, NodeId to) {
    if (!ref.is_string()) return wrong(path, "$ref", "must be a string");
    const std::string& text = ref.as_string();
    if (!text.starts_with('#')) return wrong(path, "$ref", "to another document is not supported");
    const json::Value* target = &root_;
    for (size_t i = 1; target != nullptr && i < text.size();) {
      if (text[i] != '/') return wrong(path, "$ref", "must be a JSON pointer (#/...)");
      const size_t end = std::min(text.find('/', i + 1), text.size());
      std::string step = unescaped(std::string_view(text).substr(i + 1, end - i - 1));
      const auto index = parse_i64(step);
      if (target->is_array() && index && *index >= 0 && *index < std::ssize(target->as_array())) {
        target = &target->as_array()[static_cast<size_t>(*index)];
      } else {
        target = target->find(step);
      }
      i = end;
    }
    if (target == nullptr) return wrong(path, "$ref", text + " names nothing in this schema");
    DSF_TRY(const NodeId called, rule(*target, root_path_ + text));
    net_.call(from, called, to);
    return {};
  }

  // "~1" and "~0" of JSON pointers, percent codes of URIs.
  static std::string unescaped(std::string_view step) {
    constexpr std::string_view kHex = "0123456789ABCDEF0123456789abcdef";
    std::string out;
    for (size_t i = 0; i < step.size(); ++i) {
      if (step[i] == '%' && i + 2 < step.size() && kHex.find(step[i + 1]) != kHex.npos &&
          kHex.find(step[i + 2]) != kHex.npos) {
        out += static_cast<char>((kHex.find(step[i + 1]) & 15) << 4 | (kHex.find(step[i + 2]) & 15));
        i += 2;
      } else if (step[i] == '~' && i + 1 < step.size()) {
        out += step[++i] == '1' ? '/' : '~';
      } else {
        out += step[i];
      }
    }
    return out;
  }

  Result<void> listed(const json::Value& schema, const std::string& path, NodeId from, NodeId to) {
    const json::Value* one = schema.find("const");
    const char* key = one != nullptr ? "const" : "enum";
    DSF_OK(stands_alone(schema, path, key, {"type"}));
    json::Array values;
    if (one != nullptr) {
      values.push_back(*one);
    } else {
      if (!schema.find(key)->is_array()) return wrong(path, key, "must be a list");
      values = schema.find(key)->as_array();
    }
    DSF_TRY(const std::vector<std::string> types, types_of(schema, path));
    std::vector<std::string> texts;
    for (const json::Value& value : values) {
      const bool fits = types.empty() || std::any_of(types.begin(), types.end(),
                                                     [&](const std::string& t) { return is_of_type(value, t); });
      if (fits) texts.push_back(json::dump(value));
    }
    net_.texts(from, texts, to);
    return {};
  }

  // A value of "oneOf" that fits two parts cannot be told apart here: it is read as "anyOf".
  Result<void> combined(const json::Value& parts, const std::string& path, const std::string& key, NodeId from,
                        NodeId to) {
    if (!parts.is_array() || parts.as_array().empty()) return wrong(path, key, "must be a list of schemas");
    if (key == "allOf" && parts.as_array().size() > 1)
      return wrong(path, key, "of more than one schema is not supported");
    for (size_t i = 0; i < parts.as_array().size(); ++i) {
      DSF_TRY(const NodeId part, rule(parts.as_array()[i], path + "." + key + "[" + std::to_string(i) + "]"));
      net_.call(from, part, to);
    }
    return {};
  }

  // The declared types, or those that the keywords speak of; empty: any.
  static Result<std::vector<std::string>> types_of(const json::Value& schema, const std::string& path) {
    static const Keys kTypes{"null", "boolean", "integer", "number", "string", "array", "object"};
    std::vector<std::string> out;
    const json::Value* type = schema.find("type");
    if (type == nullptr) {
      if (has_any(schema, kObject)) out.emplace_back("object");
      if (has_any(schema, kArray)) out.emplace_back("array");
      if (has_any(schema, kString)) out.emplace_back("string");
      if (has_any(schema, kNumber)) out.emplace_back("number");
      return out;
    }
    const json::Array names = type->is_array() ? type->as_array() : json::Array{*type};
    for (const json::Value& name : names) {
      if (!name.is_string() || !kTypes.contains(name.as_string()))
        return wrong(path, "type", "must be null, boolean, integer, number, string, array, object, or a list of these");
      out.push_back(name.as_string());
    }
    if (out.empty()) return wrong(path, "type", "must not be empty");
    return out;
  }

  Result<void> typed(const json::Value& schema, const std::string& path, const std::string& type, NodeId from,
                     NodeId to) {
    if (type == "object") return object(schema, path, from, to);
    if (type == "array") return array(schema, path, from, to);
    if (type == "string") return string(schema, path, from, to);
    if (type == "null") net_.text(from, "null", to);
    if (type == "boolean") net_.texts(from, {"true", "false"}, to);
    if (type != "integer" && type != "number") return {};
    DSF_TRY(const NumberBounds bounds, bounds_of(schema, path));
    if (type == "integer") integer(net_, from, bounds, to);
    if (type == "number") number(net_, from, bounds, to);
    return {};
  }

  static Result<std::optional<int64_t>> count_of(const json::Value& schema, const std::string& path, const char* key) {
    const json::Value* value = schema.find(key);
    if (value == nullptr) return std::optional<int64_t>();
    const auto number = value->to_double();
    if (!number || !is_of_type(*value, "integer") || *number < 0)
      return wrong(path, key, "must be a whole number, at least 0");
    return std::optional<int64_t>(static_cast<int64_t>(std::min(*number, 1e15)));
  }

  static Result<NumberBounds> bounds_of(const json::Value& schema, const std::string& path) {
    NumberBounds out;
    for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const json::Value* value = schema.find(key);
      if (value == nullptr) continue;
      if (!value->is_number()) return wrong(path, key, "must be a number");
      const bool lower = std::string_view(key).ends_with("inimum"), open = std::string_view(key).starts_with("ex");
      const auto bound = to_decimal(*value);
      if (!bound) {
        // Numbers have at most 18 digits here, so that a bound far outside says nothing.
        if (lower ? *value->to_double() <= -1e18 : *value->to_double() >= 1e18) continue;
        return wrong(path, key, "with more than 18 digits is not supported");
      }
      std::optional<Decimal>& mine = lower ? out.min : out.max;
      bool& mine_open = lower ? out.open_min : out.open_max;
      const bool same = mine && !less(*mine, *bound) && !less(*bound, *mine);
      if (!mine || (lower ? less(*mine, *bound) : less(*bound, *mine))) {
        mine = bound;
        mine_open = open;
      } else if (same) {
        mine_open = mine_open || open;
      }
    }
    return out;
  }

  Result<void> string(const json::Value& schema, const std::string& path, NodeId from, NodeId to) {
    DSF_TRY(const auto shortest, count_of(schema, path, "minLength"));
    DSF_TRY(const auto longest, count_of(schema, path, "maxLength"));
    const json::Value* pattern = schema.find("pattern");
    const json::Value* format = schema.find("format");
    if (pattern != nullptr || format != nullptr) {
      if (shortest || longest || (pattern != nullptr && format != nullptr))
        return wrong(path, pattern != nullptr ? "pattern" : "format",
                     "with a length or another pattern is not supported");
      return shaped_string(path, pattern, format, from, to);
    }
    if (!shortest && !longest) {
      json_.any_string(from, to);
      return {};
    }
    if (longest && *longest < shortest.value_or(0)) return wrong(path, "maxLength", "is below minLength");
    const NodeId body = net_.node(), end = net_.node();
    net_.byte(from, '"', '"', body);
    net_.repeat(body, json_.json_char(), shortest.value_or(0), longest.value_or(-1), end);
    net_.byte(end, '"', '"', to);
    return {};
  }

  Result<void> shaped_string(const std::string& path, const json::Value* pattern, const json::Value* format,
                             NodeId from, NodeId to) {
    const char* key = pattern != nullptr ? "pattern" : "format";
    const json::Value& given = pattern != nullptr ? *pattern : *format;
    if (!given.is_string()) return wrong(path, key, "must be a string");
    std::string text = given.as_string();
    if (format != nullptr) {
      const auto known = pattern_of_format(text);
      if (!known) return wrong(path, "format", text + " is not supported; leave it out or give a pattern");
      text = *known;
    }
    const NodeId body = net_.node(), end = net_.node();
    net_.byte(from, '"', '"', body);
    DSF_OK(regex(net_, body, text, Match::kAnywhere, Spelling::kInJson, end, path + "." + key));
    net_.byte(end, '"', '"', to);
    return {};
  }

  Result<void> array(const json::Value& schema, const std::string& path, NodeId from, NodeId to) {
    DSF_TRY(const auto fewest, count_of(schema, path, "minItems"));
    DSF_TRY(const auto most, count_of(schema, path, "maxItems"));
    const int64_t min = fewest.value_or(0), max = most.value_or(-1);
    if (max >= 0 && max < min) return wrong(path, "maxItems", "is below minItems");
    const json::Value* items = schema.find("items");
    if (items != nullptr && items->is_array())
      return wrong(path, "items", "as a list is not supported; use prefixItems");
    NodeId item = -1;
    if (items == nullptr) {
      item = json_.value();
    } else {
      DSF_TRY(item, rule(*items, path + ".items"));
    }
    std::vector<NodeId> heads;  // the items that have a place of their own; one at least, for the comma
    if (const json::Value* prefix = schema.find("prefixItems")) {
      if (!prefix->is_array()) return wrong(path, "prefixItems", "must be a list of schemas");
      for (size_t i = 0; i < prefix->as_array().size(); ++i) {
        DSF_TRY(const NodeId head, rule(prefix->as_array()[i], path + ".prefixItems[" + std::to_string(i) + "]"));
        heads.push_back(head);
      }
    }
    if (heads.empty()) heads.push_back(item);
    NodeId here = net_.node();  // behind the bracket, or behind an item
    json_.open(from, '[', here);
    if (min == 0) net_.byte(here, ']', ']', to);
    int64_t count = 0;
    for (const NodeId head : heads) {
      if (max >= 0 && count >= max) return {};
      const NodeId before = net_.node(), after = net_.node();
      if (count == 0) net_.skip(here, before);
      if (count > 0) json_.comma(here, before);
      net_.call(before, head, after);
      here = after;
      if (++count >= min) json_.close(here, ']', to);
    }
    const NodeId another = net_.node(), start = net_.node(), full = net_.node();
    json_.comma(another, start);
    net_.call(start, item, net_.finish());
    // Nothing further is closed above already.
    net_.repeat(here, another, std::max<int64_t>(1, min - count), max < 0 ? -1 : max - count, full);
    if (max < 0 || max > count) json_.close(full, ']', to);
    return {};
  }

  struct Property {
    std::string name;
    NodeId rule;
    bool required;
  };

  Result<std::vector<Property>> properties_of(const json::Value& schema, const std::string& path, NodeId additional) {
    std::vector<Property> out;
    if (const json::Value* declared = schema.find("properties")) {
      if (!declared->is_object()) return wrong(path, "properties", "must be an object");
      for (const auto& [name, part] : declared->as_object()) {
        DSF_TRY(const NodeId called, rule(part, path + ".properties." + name));
        out.push_back({name, called, false});
      }
    }
    const json::Value* required = schema.find("required");
    if (required == nullptr) return out;
    if (!required->is_array()) return wrong(path, "required", "must be a list of names");
    for (const json::Value& name : required->as_array()) {
      if (!name.is_string()) return wrong(path, "required", "must be a list of names");
      const auto found =
          std::find_if(out.begin(), out.end(), [&](const Property& p) { return p.name == name.as_string(); });
      if (found != out.end()) {
        found->required = true;
        continue;
      }
      if (additional < 0)
        return wrong(path, "required", "names " + name.as_string() + ", which additionalProperties forbids");
      out.push_back({name.as_string(), additional, true});
    }
    return out;
  }

  Result<void> object(const json::Value& schema, const std::string& path, NodeId from, NodeId to) {
    const json::Value* more = schema.find("additionalProperties");
    const bool closed = more != nullptr && more->is_bool() && !more->as_bool();
    NodeId additional = closed ? -1 : json_.value();
    if (more != nullptr && !closed) {
      DSF_TRY(additional, rule(*more, path + ".additionalProperties"));
    }
    DSF_TRY(const std::vector<Property> properties, properties_of(schema, path, additional));
    // first: no member yet; rest: some; both before the member that may come next.
    NodeId first = net_.node(), rest = net_.node();
    json_.open(from, '{', first);
    for (const Property& p : properties) {
      const NodeId key = net_.node(), after_first = net_.node(), after_rest = net_.node();
      member_key(first, rest, key);
      const NodeId named = net_.node(), value = net_.node();
      net_.text(key, json::quote(p.name), named);
      json_.colon(named, value);
      net_.call(value, p.rule, after_rest);
      if (!p.required) {
        net_.skip(first, after_first);
        net_.skip(rest, after_rest);
      }
      first = after_first;
      rest = after_rest;
    }
    if (!closed && (more != nullptr || properties.empty())) {
      const NodeId key = net_.node(), named = net_.node(), value = net_.node();
      member_key(first, rest, key);
      std::vector<std::string> names;
      for (const Property& p : properties) names.push_back(p.name);
      json_.string_except(key, names, named);
      json_.colon(named, value);
      net_.call(value, additional, rest);
    }
    net_.byte(first, '}', '}', to);
    json_.close(rest, '}', to);
    return {};
  }
  // A member's key follows the bracket, or a comma.
  void member_key(NodeId first, NodeId rest, NodeId key) {
    net_.skip(first, key);
    json_.comma(rest, key);
  }

  Network& net_;
  JsonRules& json_;
  const json::Value& root_;
  const std::string root_path_;
  std::map<const json::Value*, NodeId> rules_;
};

}  // namespace

Result<NodeId> schema_rule(Network& net, JsonRules& json, const json::Value& schema, const std::string& path) {
  return Compiler(net, json, schema, path).rule(schema, path);
}

}  // namespace dsf::serve::grammar
