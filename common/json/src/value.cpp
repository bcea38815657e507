#include "dsf/base/check.h"
#include "dsf/json/json.h"

namespace dsf::json {

Value::Value(BigInteger b) : v_(std::move(b)) {}
Value::Value(std::string s) : v_(std::move(s)) {}
Value::Value(std::string_view s) : v_(std::string(s)) {}
Value::Value(const char* s) : v_(std::string(s)) {}
Value::Value(Array a) : v_(std::move(a)) {}
Value::Value(Object o) : v_(std::move(o)) {}
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;
Value Value::array() { return Value(Array{}); }
Value Value::object() { return Value(Object{}); }
bool Value::operator==(const Value& other) const { return v_ == other.v_; }  // Clang 14 fails on "= default" here

std::string_view Value::type_name() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_integer()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

namespace {
template <class T, class V>
auto& expect(V& v) {
  auto* p = std::get_if<T>(&v);
  DSF_CHECK(p != nullptr, "JSON value read as a kind it is not; test is_*() first");
  return *p;
}
}  // namespace

bool Value::as_bool() const { return expect<bool>(v_); }
const std::string& Value::as_string() const { return expect<std::string>(v_); }
const Array& Value::as_array() const { return expect<Array>(v_); }
const Object& Value::as_object() const { return expect<Object>(v_); }
Array& Value::as_array() { return expect<Array>(v_); }
Object& Value::as_object() { return expect<Object>(v_); }

std::optional<int64_t> Value::to_i64() const {
  if (const auto* i = std::get_if<int64_t>(&v_)) return *i;
  return std::nullopt;
}

std::optional<uint64_t> Value::to_u64() const {
  if (const auto* u = std::get_if<uint64_t>(&v_)) return *u;
  if (const auto* i = std::get_if<int64_t>(&v_); i != nullptr && *i >= 0) return static_cast<uint64_t>(*i);
  return std::nullopt;
}

std::optional<double> Value::to_double() const {
  if (const auto* d = std::get_if<double>(&v_)) return *d;
  if (const auto* i = std::get_if<int64_t>(&v_)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&v_)) return static_cast<double>(*u);
  if (const auto* b = std::get_if<BigInteger>(&v_)) return std::stod(b->digits);
  return std::nullopt;
}

const Value* Value::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&v_);
  if (object == nullptr) return nullptr;
  for (const Member& m : *object)
    if (m.first == key) return &m.second;
  return nullptr;
}

Value* Value::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Value::set(std::string_view key, Value value) {
  if (is_null()) v_ = Object{};
  if (Value* old = find(key)) {
    *old = std::move(value);
    return *old;
  }
  return as_object().emplace_back(std::string(key), std::move(value)).second;
}

Value& Value::push(Value value) {
  if (is_null()) v_ = Array{};
  return as_array().emplace_back(std::move(value));
}

}  // namespace dsf::json
