#include "tools/fetch/events.h"

#include <cstdio>

#include "dsf/base/time.h"

namespace dsf::fetch {

void Events::emit(std::string_view event, json::Object members) {
  if (!enabled_) return;
  json::Object object = {{"schema", "fetch-event"}, {"v", 1}, {"time", now_rfc3339()}, {"event", event}};
  for (auto& m : members) object.push_back(std::move(m));
  const std::string line = json::dump(json::Value(std::move(object))) + "\n";
  const std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace dsf::fetch
