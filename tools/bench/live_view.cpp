#include "tools/bench/live_view.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/log.h"

namespace dsf::bench {

LiveView::LiveView(const Live& live, int64_t planned, bool enabled)
    : live_(live), planned_(planned), start_ns_(monotonic_ns()), terminal_(cli::stderr_is_terminal()) {
  if (enabled) thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

LiveView::~LiveView() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  if (terminal_) [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, "\r\033[K", 4);
}

void LiveView::level(const std::string& phase, const std::string& thinking, int64_t c, int64_t done) {
  phase_ = phase == "prefill" ? "prefill" : phase == "decode" ? "decode" : "warm-up";
  thinking_ = thinking == "off" ? -1 : parse_i64(thinking).value_or(0);
  c_ = c;
  done_ = done;
}

void LiveView::loop(const std::stop_token& stop) {
  int64_t last_ns = monotonic_ns(), last_events = 0, last_log_ns = last_ns;
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int64_t now = monotonic_ns();
    if (terminal_) {
      const std::string text = "\r\033[K" + line(now, last_ns, last_events);
      [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    } else if (now - last_log_ns > 30'000'000'000) {
      last_log_ns = now;
      cli::log(cli::Level::kInfo, line(now, last_ns, last_events));
    }
  }
}

std::string LiveView::line(int64_t now_ns, int64_t& last_ns, int64_t& last_events) const {
  const int64_t events = live_.events.load(std::memory_order_relaxed);
  const double rate = static_cast<double>(events - last_events) * 1e9 / static_cast<double>(std::max<int64_t>(1, now_ns - last_ns));
  last_ns = now_ns;
  last_events = events;
  const int64_t done = done_;
  const double elapsed_s = static_cast<double>(now_ns - start_ns_) / 1e9;
  const double left_s = done > 0 ? elapsed_s / static_cast<double>(done) * static_cast<double>(planned_ - done) : 0;
  std::array<char, 160> text{};
  const int64_t thinking = thinking_;
  std::snprintf(text.data(), text.size(), "%s thinking %s C%ld  %ld/%ld requests  %d live  %.0f events/s  %.0f s, about %.0f s left", phase_.load(),
                thinking < 0 ? "off" : std::to_string(thinking).c_str(), static_cast<long>(c_), static_cast<long>(done), static_cast<long>(planned_),
                live_.streams.load(std::memory_order_relaxed), rate, elapsed_s, left_s);
  return text.data();
}

}  // namespace dsf::bench
