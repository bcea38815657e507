#pragma once
// SIGINT and SIGTERM as conventions want them: the first one sets a flag and wakes a pipe, the second one ends the process at once.
// After the work has been put down, finish_signal() restores the default handler and raises the signal again.
namespace dsf::cli {
void install_stop_signals();   // once, before threads start
bool stop_requested();
int stop_signal();             // 0, SIGINT or SIGTERM
int stop_fd();                 // becomes readable at the first signal; for poll()
void finish_signal();          // re-raises when a signal was seen, returns otherwise
void ignore_sigpipe();         // for servers and clients of sockets
}  // namespace dsf::cli
