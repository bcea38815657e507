#include "dsf/json/json.h"

namespace dsf::json {

Cursor::Cursor(const Value& value, std::string subject, Code code) : Cursor(&value, std::move(subject), "", code) {}
Cursor::Cursor(const Value* value, std::string subject, std::string path, Code code)
    : value_(value), subject_(std::move(subject)), path_(std::move(path)), code_(code) {}

Unexpected Cursor::fail(std::string what, std::string fix) const {
  return dsf::fail(code_, subject_, path_.empty() ? std::move(what) : path_ + ": " + std::move(what), std::move(fix), "json");
}

Result<Cursor> Cursor::at(std::string_view key) const {
  if (!value_->is_object()) return fail("object expected, got " + std::string(value_->type_name()));
  const std::string path = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  const Value* member = value_->find(key);
  if (member == nullptr) return dsf::fail(code_, subject_, path + ": missing", {}, "json");
  return Cursor(member, subject_, path, code_);
}

std::optional<Cursor> Cursor::maybe(std::string_view key) const {
  const Value* member = value_->find(key);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return Cursor(member, subject_, path_.empty() ? std::string(key) : path_ + "." + std::string(key), code_);
}

Result<std::vector<Cursor>> Cursor::elements() const {
  if (!value_->is_array()) return fail("array expected, got " + std::string(value_->type_name()));
  std::vector<Cursor> out;
  size_t i = 0;
  for (const Value& v : value_->as_array()) out.push_back(Cursor(&v, subject_, path_ + "[" + std::to_string(i++) + "]", code_));
  return out;
}

Result<bool> Cursor::boolean() const {
  if (!value_->is_bool()) return fail("boolean expected, got " + std::string(value_->type_name()));
  return value_->as_bool();
}

Result<int64_t> Cursor::integer(int64_t min, int64_t max) const {
  if (!value_->is_integer()) return fail("integer expected, got " + std::string(value_->type_name()));
  const auto i = value_->to_i64();
  if (!i || *i < min || *i > max) {
    const std::string upper = max == INT64_MAX ? "" : " to " + std::to_string(max);
    return fail(dump(*value_) + " is out of range (" + std::to_string(min) + upper + ")");
  }
  return *i;
}

Result<uint64_t> Cursor::u64() const {
  const auto u = value_->to_u64();
  if (!u) return fail("unsigned 64-bit integer expected, got " + std::string(value_->type_name()));
  return *u;
}

Result<double> Cursor::number() const {
  const auto d = value_->to_double();
  if (!d) return fail("number expected, got " + std::string(value_->type_name()));
  return *d;
}

Result<std::string> Cursor::string() const {
  if (!value_->is_string()) return fail("string expected, got " + std::string(value_->type_name()));
  return value_->as_string();
}

Result<std::vector<int64_t>> Cursor::integers(int64_t min, int64_t max) const {
  DSF_TRY(const auto items, elements());
  std::vector<int64_t> out;
  for (const Cursor& c : items) {
    DSF_TRY(const int64_t i, c.integer(min, max));
    out.push_back(i);
  }
  return out;
}

Result<int64_t> Cursor::integer_at(std::string_view key, int64_t min, int64_t max) const {
  DSF_TRY(const Cursor c, at(key));
  return c.integer(min, max);
}
Result<int64_t> Cursor::integer_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  const auto c = maybe(key);
  return c ? c->integer(min, max) : fallback;
}
Result<double> Cursor::number_at(std::string_view key) const {
  DSF_TRY(const Cursor c, at(key));
  return c.number();
}
Result<double> Cursor::number_or(std::string_view key, double fallback) const {
  const auto c = maybe(key);
  return c ? c->number() : fallback;
}
Result<std::string> Cursor::string_at(std::string_view key) const {
  DSF_TRY(const Cursor c, at(key));
  return c.string();
}
Result<std::string> Cursor::string_or(std::string_view key, std::string fallback) const {
  const auto c = maybe(key);
  return c ? c->string() : Result<std::string>(std::move(fallback));
}
Result<bool> Cursor::boolean_or(std::string_view key, bool fallback) const {
  const auto c = maybe(key);
  return c ? c->boolean() : fallback;
}

}  // namespace dsf::json
