#pragma once
// Log lines and progress on stderr. "level tool key=value ..." with values quoted when they hold spaces.
// Thread-safe: one line, one write. The log level and the tool name are the process-wide state that conventions allow.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace dsf::cli {

enum class Level { kError, kWarn, kInfo, kDebug };
using Field = std::pair<std::string_view, std::string>;

void set_tool_name(std::string_view name);           // run_main() sets the base name of argv[0]
void set_log_level(Level level);                     // default kInfo
Level log_level();
void log(Level level, std::string_view message, std::initializer_list<Field> fields = {});

// A progress line: redrawn ten times a second at most on a terminal, one info line every 30 s elsewhere. Not for several threads.
class Progress {
 public:
  explicit Progress(std::string what, uint64_t total_bytes, bool enabled = true);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(uint64_t done_bytes, std::string_view note = {});

 private:
  std::string what_;
  uint64_t total_;
  bool enabled_, terminal_;
  int64_t start_ns_, last_ns_;
  bool drawn_ = false;
};

bool stderr_is_terminal();

}  // namespace dsf::cli
