#pragma once
// The event stream of --json: one object per line on stdout, each with v and the UTC time. Thread-safe. Source:
// hub.md 3.14.
#include <initializer_list>
#include <mutex>
#include <string_view>
#include <utility>

#include "dsf/json/json.h"

namespace dsf::fetch {

class Events {
 public:
  explicit Events(bool enabled) : enabled_(enabled) {}
  void emit(std::string_view event, json::Object members);
  bool enabled() const { return enabled_; }

 private:
  bool enabled_;
  std::mutex mutex_;
};

}  // namespace dsf::fetch
