#include "dsf/cli/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"

namespace dsf::cli {
namespace {
std::atomic<Level> level_now{Level::kInfo};
std::string tool = "dsf";

// One write per line, so that lines of several threads do not mix.
void put(std::string_view text) {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

std::string field_value(const std::string& v) {
  if (!v.empty() && v.find_first_of(" \"=\n\t") == std::string::npos) return v;
  std::string out = "\"";
  for (char c : v) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}
}  // namespace

void set_tool_name(std::string_view name) { tool = name; }
void set_log_level(Level level) { level_now = level; }
Level log_level() { return level_now; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

void log(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (level > level_now) return;
  static constexpr std::array<std::string_view, 4> kNames{"error", "warn", "info", "debug"};
  std::string line(kNames[static_cast<size_t>(level)]);
  line.append(" ").append(tool).append(" ").append(message);
  for (const auto& [key, value] : fields) line.append(" ").append(key).append("=").append(field_value(value));
  put(line + "\n");
}

Progress::Progress(std::string what, uint64_t total_bytes, bool enabled)
    : what_(std::move(what)), total_(total_bytes), enabled_(enabled), terminal_(stderr_is_terminal()), start_ns_(monotonic_ns()), last_ns_(start_ns_) {}

Progress::~Progress() {
  if (drawn_) put("\r\x1b[K");
}

void Progress::update(uint64_t done_bytes, std::string_view note) {
  const int64_t now = monotonic_ns();
  if (!enabled_ || now - last_ns_ < (terminal_ ? 100'000'000 : 30'000'000'000)) return;
  last_ns_ = now;
  const double seconds = static_cast<double>(now - start_ns_) * 1e-9;
  const double rate = static_cast<double>(done_bytes) / seconds;
  const std::string percent = total_ > 0 ? std::to_string(100 * done_bytes / total_) + "%" : "?";
  if (!terminal_) {
    log(Level::kInfo, what_, {{"done", format_bytes(done_bytes)}, {"of", format_bytes(total_)}, {"rate", format_bytes(static_cast<uint64_t>(rate)) + "/s"}});
    return;
  }
  drawn_ = true;
  put("\r\x1b[K" + what_ + " " + percent + " " + format_bytes(done_bytes) + " / " + format_bytes(total_) + "  " +
      format_bytes(static_cast<uint64_t>(rate)) + "/s " + std::string(note));
}

}  // namespace dsf::cli
