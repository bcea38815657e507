#include "dsf/cli/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "dsf/base/check.h"

namespace dsf::cli {
namespace {
volatile std::sig_atomic_t seen = 0;
std::array<int, 2> wake{-1, -1};

// Async-signal-safe: a flag and one byte. The second signal finds the default handler and ends the process.
void on_signal(int number) {
  seen = number;
  const char byte = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake[1], &byte, 1);
  std::signal(number, SIG_DFL);
}
}  // namespace

void install_stop_signals() {
  DSF_CHECK(::pipe2(wake.data(), O_CLOEXEC | O_NONBLOCK) == 0, "pipe for signals");
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return seen != 0; }
int stop_signal() { return seen; }
int stop_fd() { return wake[0]; }

void finish_signal() {
  if (seen == 0) return;
  std::signal(seen, SIG_DFL);
  std::raise(seen);
}

void ignore_sigpipe() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace dsf::cli
