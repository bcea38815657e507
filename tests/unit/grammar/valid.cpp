#include "valid.h"

#include <algorithm>
#include <cmath>

namespace dsf::test {
namespace {

bool has_type(const json::Value& v, const std::string& type) {
  if (type == "integer") return v.is_integer() || (v.is_number() && std::floor(*v.to_double()) == *v.to_double());
  if (type == "number") return v.is_number();
  return v.type_name() == type;
}

const json::Value& resolve(const std::string& ref, const json::Value& root) {
  const json::Value* at = &root;
  for (size_t i = ref.find('/'); i != std::string::npos && at != nullptr;) {
    const size_t end = ref.find('/', i + 1);
    std::string step = ref.substr(i + 1, end == std::string::npos ? end : end - i - 1);
    if (const size_t slash = step.find("~1"); slash != std::string::npos) step.replace(slash, 2, "/");
    at = at->find(step);
    i = end;
  }
  static const json::Value never(false);
  return at == nullptr ? never : *at;
}

bool counts(const json::Value& schema, const char* low, const char* high, size_t n) {
  const json::Value *min = schema.find(low), *max = schema.find(high);
  return (min == nullptr || static_cast<double>(n) >= *min->to_double()) &&
         (max == nullptr || static_cast<double>(n) <= *max->to_double());
}

size_t characters(const std::string& s) {
  return static_cast<size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool valid_number(double x, const json::Value& s) {
  const auto holds = [&](const char* key, auto compare) {
    const json::Value* bound = s.find(key);
    return bound == nullptr || compare(x, *bound->to_double());
  };
  return holds("minimum", std::greater_equal<double>()) && holds("maximum", std::less_equal<double>()) &&
         holds("exclusiveMinimum", std::greater<double>()) && holds("exclusiveMaximum", std::less<double>());
}

bool valid_array(const json::Value& v, const json::Value& s, const json::Value& root) {
  const json::Array& items = v.as_array();
  const json::Value *prefix = s.find("prefixItems"), *rest = s.find("items");
  for (size_t i = 0; i < items.size(); ++i) {
    const bool own = prefix != nullptr && i < prefix->as_array().size();
    if (own && !valid(items[i], prefix->as_array()[i], root)) return false;
    if (!own && rest != nullptr && !valid(items[i], *rest, root)) return false;
  }
  return counts(s, "minItems", "maxItems", items.size());
}

bool valid_object(const json::Value& v, const json::Value& s, const json::Value& root) {
  const json::Value *declared = s.find("properties"), *more = s.find("additionalProperties"),
                    *required = s.find("required");
  for (const auto& [name, value] : v.as_object()) {
    const json::Value* own = declared == nullptr ? nullptr : declared->find(name);
    if (own == nullptr) own = more;
    if (own != nullptr && !valid(value, *own, root)) return false;
  }
  if (required == nullptr) return true;
  const json::Array& names = required->as_array();
  return std::all_of(names.begin(), names.end(),
                     [&](const json::Value& n) { return v.find(n.as_string()) != nullptr; });
}

}  // namespace

bool valid(const json::Value& v, const json::Value& s, const json::Value& root) {
  if (s.is_bool()) return s.as_bool();
  if (const json::Value* ref = s.find("$ref")) return valid(v, resolve(ref->as_string(), root), root);
  if (const json::Value* one = s.find("const"); one != nullptr && !(*one == v)) return false;
  if (const json::Value* list = s.find("enum")) {
    const json::Array& a = list->as_array();
    if (std::find(a.begin(), a.end(), v) == a.end()) return false;
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const json::Value* parts = s.find(key);
    if (parts == nullptr) continue;
    const json::Array& a = parts->as_array();
    if (std::none_of(a.begin(), a.end(), [&](const json::Value& p) { return valid(v, p, root); })) return false;
  }
  if (const json::Value* type = s.find("type")) {
    const json::Array types = type->is_array() ? type->as_array() : json::Array{*type};
    if (std::none_of(types.begin(), types.end(), [&](const json::Value& t) { return has_type(v, t.as_string()); }))
      return false;
  }
  if (v.is_string()) return counts(s, "minLength", "maxLength", characters(v.as_string()));
  if (v.is_number()) return valid_number(*v.to_double(), s);
  if (v.is_array()) return valid_array(v, s, root);
  return !v.is_object() || valid_object(v, s, root);
}

}  // namespace dsf::test
