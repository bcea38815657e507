#pragma once
// Flat structs to JSON and back from one table of names and members, so that writer and reader cannot drift apart. An empty string and an absent
// number are null in JSON. Header only; any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "dsf/json/json.h"

namespace dsf::bench {

template <class T>
struct Field {
  std::string_view name;
  std::variant<int64_t T::*, bool T::*, std::string T::*, std::optional<int64_t> T::*> member;
  bool later = false;  // came after the first files of this kind: may be missing
};

inline json::Value or_null(const std::optional<int64_t>& v) { return v ? json::Value(*v) : json::Value(); }
inline json::Value or_null(const std::string& s) { return s.empty() ? json::Value() : json::Value(s); }
inline json::Value or_null(int64_t v) { return v; }
inline json::Value or_null(bool v) { return v; }

template <class T, class Table>
void write_fields(json::Value& out, const T& from, const Table& table) {
  for (const auto& field : table) {
    std::visit([&](auto member) { out.set(field.name, or_null(from.*member)); }, field.member);
  }
}

namespace detail {
inline Result<void> read_member(const json::Cursor& at, std::string_view key, int64_t& out) {
  DSF_TRY(out, at.integer_at(key));
  return {};
}
inline Result<void> read_member(const json::Cursor& at, std::string_view key, bool& out) {
  DSF_TRY(const json::Cursor member, at.at(key));
  DSF_TRY(out, member.boolean());
  return {};
}
inline Result<void> read_member(const json::Cursor& at, std::string_view key, std::string& out) {
  DSF_TRY(out, at.string_or(key, ""));
  return {};
}
inline Result<void> read_member(const json::Cursor& at, std::string_view key, std::optional<int64_t>& out) {
  const auto member = at.maybe(key);
  if (!member) return {};
  DSF_TRY(out, member->integer());
  return {};
}
}  // namespace detail

// Numbers and truths of the table must be there unless they came later; texts may be null or absent. Errors: those of the cursor.
template <class T, class Table>
Result<void> read_fields(const json::Cursor& at, T& to, const Table& table) {
  for (const auto& field : table) {
    if (field.later && !at.maybe(field.name)) continue;
    DSF_OK(std::visit([&](auto member) { return detail::read_member(at, field.name, to.*member); }, field.member));
  }
  return {};
}

}  // namespace dsf::bench
