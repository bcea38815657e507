#include "tools/serve/api/fields.h"

#include <cmath>

namespace dsf::serve {
namespace {

// Every bound of this API is a whole number.
std::string describe_range(const NumberRange& range) {
  const bool low = std::isfinite(range.min), high = std::isfinite(range.max);
  std::string out;
  if (low) out = (range.open_min ? "greater than " : "at least ") + json::dump(static_cast<int64_t>(range.min));
  if (high) out += (low ? " and at most " : "at most ") + json::dump(static_cast<int64_t>(range.max));
  return out;
}

}  // namespace

const json::Value* Fields::find(std::string_view key) const {
  const json::Value* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

ApiResult<std::optional<double>> Fields::number(std::string_view key, NumberRange range) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->to_double();
  if (!number || !std::isfinite(*number)) return refuse(path(key) + " must be a number", path(key));
  if (*number < range.min || *number > range.max || (range.open_min && *number <= range.min)) {
    return refuse(path(key) + " must be " + describe_range(range) + " (got " + json::dump(*value) + ")", path(key));
  }
  return number;
}

ApiResult<double> Fields::number_or(std::string_view key, double fallback, NumberRange range) const {
  DSF_API_TRY(const auto value, number(key, range));
  return value.value_or(fallback);
}

ApiResult<std::optional<int64_t>> Fields::integer(std::string_view key, int64_t min, int64_t max) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> integer = value->to_i64();
  // 16.0 is an integer to JSON Schema, and some clients print it so.
  if (const auto number = value->to_double();
      !integer && !value->is_integer() && number && std::nearbyint(*number) == *number && std::abs(*number) < 9e15) {
    integer = static_cast<int64_t>(*number);
  }
  if (!integer) return refuse(path(key) + " must be an integer", path(key));
  if (*integer < min || *integer > max) {
    const std::string bound = *integer < min ? "at least " + std::to_string(min) : "at most " + std::to_string(max);
    return refuse(path(key) + " must be " + bound + " (got " + std::to_string(*integer) + ")", path(key));
  }
  return integer;
}

ApiResult<int64_t> Fields::integer_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  DSF_API_TRY(const auto value, integer(key, min, max));
  return value.value_or(fallback);
}

ApiResult<bool> Fields::boolean_or(std::string_view key, bool fallback) const {
  const json::Value* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return refuse(path(key) + " must be a boolean", path(key));
  return value->as_bool();
}

ApiResult<std::optional<std::string>> Fields::string(std::string_view key) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return refuse(path(key) + " must be a string", path(key));
  return value->as_string();
}

ApiResult<const json::Value*> Fields::object(std::string_view key) const {
  const json::Value* value = find(key);
  if (value != nullptr && !value->is_object()) return refuse(path(key) + " must be an object", path(key));
  return value;
}

ApiResult<std::vector<std::string>> Fields::strings(std::string_view key) const {
  const json::Value* value = find(key);
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (value->is_string()) return std::vector<std::string>{value->as_string()};
  if (!value->is_array()) return refuse(path(key) + " must be a string or a list of strings", path(key));
  for (const json::Value& item : value->as_array()) {
    if (!item.is_string()) return refuse(path(key) + " must be a string or a list of strings", path(key));
    out.push_back(item.as_string());
  }
  return out;
}

}  // namespace dsf::serve
