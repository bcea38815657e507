#pragma once
// JSON values, a strict reader with a path in every error, and writers with a stable key order.
//
// Value owns its tree; copy is deep. Objects keep insertion order (the chat prompt's JSON depends on it). Integers beyond 64 bits
// keep their digits. Any thread may read a Value that nobody writes. Parsing uses nlohmann/json inside json.cpp only.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;  // insertion order; keys unique once parsed

// An integer that fits neither int64 nor uint64: its digits as written ("-" allowed).
struct BigInteger {
  std::string digits;
  bool operator==(const BigInteger&) const = default;
};

class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool b) : v_(b) {}
  template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  Value(T i) {
    if constexpr (std::is_unsigned_v<T>) {
      if (static_cast<uint64_t>(i) > static_cast<uint64_t>(INT64_MAX)) {
        v_ = static_cast<uint64_t>(i);
        return;
      }
    }
    v_ = static_cast<int64_t>(i);
  }
  Value(double d) : v_(d) {}
  // Out of line, so that a file full of documents does not repeat the variant's code at every brace.
  Value(BigInteger b);
  Value(std::string s);
  Value(std::string_view s);
  Value(const char* s);
  Value(Array a);
  Value(Object o);
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();
  static Value array();
  static Value object();

  bool is_null() const { return std::holds_alternative<std::monostate>(v_); }
  bool is_bool() const { return std::holds_alternative<bool>(v_); }
  // Written without '.', 'e' or 'E'.
  bool is_integer() const {
    return std::holds_alternative<int64_t>(v_) || std::holds_alternative<uint64_t>(v_) || std::holds_alternative<BigInteger>(v_);
  }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(v_); }
  bool is_string() const { return std::holds_alternative<std::string>(v_); }
  bool is_array() const { return std::holds_alternative<Array>(v_); }
  bool is_object() const { return std::holds_alternative<Object>(v_); }
  // "null", "boolean", "integer", "number", "string", "array", "object": for messages.
  std::string_view type_name() const;

  // Access to a known kind; calling the wrong one is a bug (DSF_CHECK).
  bool as_bool() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();
  // nullopt when not an integer or out of range.
  std::optional<int64_t> to_i64() const;
  std::optional<uint64_t> to_u64() const;
  // Any number; nullopt when not a number.
  std::optional<double> to_double() const;

  // Object member or nullptr (also when this is not an object).
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  // Object: sets or appends. A null Value becomes an object first.
  Value& set(std::string_view key, Value value);
  // Array: appends. A null Value becomes an array first.
  Value& push(Value value);

  bool operator==(const Value& other) const;
  const auto& raw() const { return v_; }

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, BigInteger, std::string, Array, Object> v_;
};

struct ParseOptions {
  int max_depth = 128;
  // Python keeps the last duplicate at the first one's place; files of ours reject duplicates.
  bool reject_duplicate_keys = true;
};

// text: one whole UTF-8 JSON document. subject names it in errors. Errors: kContent with line and column.
// Not accepted: comments, trailing commas, NaN, a BOM, invalid UTF-8, lone surrogate escapes, floats that overflow.
Result<Value> parse(std::string_view text, std::string_view subject, const ParseOptions& options = {});
// One value per line; blank lines are skipped. The line number is in the error.
Result<std::vector<Value>> parse_lines(std::string_view text, std::string_view subject, const ParseOptions& options = {});

enum class Style {
  kCompact,  // {"a":1,"b":[1,2]}
  kPython,   // {"a": 1, "b": [1, 2]}: byte for byte Python's json.dumps(v, ensure_ascii=False)
  kPretty,   // two spaces, one member a line, short scalar arrays on one line
};
std::string dump(const Value& value, Style style = Style::kCompact);
// The JSON string literal with quotes, escaped as Python does with ensure_ascii=False.
std::string quote(std::string_view utf8);
// Python repr of a finite double: shortest round trip, "1e+16", "1e-05", "2.5", "1.0".
std::string format_double(double value);

// A borrowed view of one place in a document, which knows its path: errors read
// "config.json: text_config.hidden_size: integer expected, got string". Lives as long as the Value and subject it was made from.
// All readers fail with kContent unless another code is given at construction.
class Cursor {
 public:
  Cursor(const Value& value, std::string subject, Code code = Code::kContent);

  const Value& value() const { return *value_; }
  const std::string& path() const { return path_; }

  Result<Cursor> at(std::string_view key) const;          // required member of an object
  std::optional<Cursor> maybe(std::string_view key) const; // absent or null: nullopt
  Result<std::vector<Cursor>> elements() const;           // of an array

  Result<bool> boolean() const;
  Result<int64_t> integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  Result<uint64_t> u64() const;
  Result<double> number() const;
  Result<std::string> string() const;
  Result<std::vector<int64_t>> integers(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;

  // Member of this object, in one step.
  Result<int64_t> integer_at(std::string_view key, int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  Result<double> number_at(std::string_view key) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<std::string> string_at(std::string_view key) const;
  Result<std::string> string_or(std::string_view key, std::string fallback) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;

  Unexpected fail(std::string what, std::string fix = {}) const;  // an Error about this place

 private:
  Cursor(const Value* value, std::string subject, std::string path, Code code);
  const Value* value_;
  std::string subject_;
  std::string path_;
  Code code_;
};

}  // namespace dsf::json
