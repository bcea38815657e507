#pragma once
// Typed reading of one JSON object of a request: absent and null are the same, and every complaint names the field.
// Borrows the object. Source: serving.md 4.2.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/api/api_error.h"

namespace dsf::serve {

struct NumberRange {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool open_min = false;  // min itself is refused
};

class Fields {
 public:
  // prefix: path of the object in the request, with its dot ("stream_options."), for messages.
  explicit Fields(const json::Value& object, std::string prefix = {}) : object_(&object), prefix_(std::move(prefix)) {}

  // nullptr when absent or null.
  const json::Value* find(std::string_view key) const;
  ApiResult<std::optional<double>> number(std::string_view key, NumberRange range = {}) const;
  ApiResult<double> number_or(std::string_view key, double fallback, NumberRange range = {}) const;
  ApiResult<std::optional<int64_t>> integer(std::string_view key, int64_t min = INT64_MIN,
                                            int64_t max = INT64_MAX) const;
  ApiResult<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min = INT64_MIN,
                                int64_t max = INT64_MAX) const;
  ApiResult<bool> boolean_or(std::string_view key, bool fallback) const;
  ApiResult<std::optional<std::string>> string(std::string_view key) const;
  // nullptr when absent or null; refused unless an object.
  ApiResult<const json::Value*> object(std::string_view key) const;
  // A string or a list of strings.
  ApiResult<std::vector<std::string>> strings(std::string_view key) const;

  std::string path(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  const json::Value* object_;
  std::string prefix_;
};

}  // namespace dsf::serve
