#include "tools/bench/record.h"

#include <algorithm>
#include <array>

namespace dsf::bench {
namespace {

constexpr std::array<std::string_view, 12> kStatusNames = {
    "ok",           "http_error",    "stream_error",  "truncated",      "timeout_connect", "timeout_first_token",
    "timeout_idle", "timeout_total", "connect_error", "protocol_error", "empty",           "aborted"};
constexpr std::array<std::string_view, 12> kKindNames = {"r",      "c",     "rc",   "t",       "x",     "role",
                                                         "finish", "usage", "done", "comment", "error", "other"};

template <class Enum, size_t N>
std::optional<Enum> find_name(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return std::nullopt;
  return static_cast<Enum>(it - names.begin());
}

}  // namespace

std::string_view name_of(Status status) { return kStatusNames[static_cast<size_t>(status)]; }
std::optional<Status> status_named(std::string_view name) { return find_name<Status>(kStatusNames, name); }
std::string_view name_of(EventKind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::optional<EventKind> event_kind_named(std::string_view name) { return find_name<EventKind>(kKindNames, name); }

bool Request::has_flag(std::string_view flag) const { return std::find(flags.begin(), flags.end(), flag) != flags.end(); }
void Request::add_flag(std::string_view flag) {
  if (!has_flag(flag)) flags.emplace_back(flag);
}

}  // namespace dsf::bench
