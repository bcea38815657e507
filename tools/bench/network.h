#pragma once
// The measured path: one thread, one epoll loop, one keep-alive connection per stream (bench.md 4.1 to 4.6).
//
// A read is stamped right after the system call, before anything looks at the bytes; after that only HTTP framing is decoded. Parsing
// of events waits until the level is over. No retries. prepare() and run() belong to one thread; Live may be read from any.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/http/connection.h"
#include "tools/bench/capture.h"

namespace dsf::bench {

struct Timeouts {
  int64_t connect_us = 10'000'000;
  int64_t first_token_us = 600'000'000;
  int64_t idle_us = 120'000'000;      // no byte at all; comments count as bytes
  int64_t total_us = 1'800'000'000;
};

// Read by the live view while run() is busy.
struct Live {
  std::atomic<int> streams{0};
  std::atomic<int64_t> events{0}, bytes{0}, finished{0};
};

struct Outgoing {
  std::string bytes;                     // the whole HTTP request
  std::optional<int64_t> scheduled_ns;   // after the start of run(); absent: now
};

struct LoopStats {
  int64_t wall_ns = 0, cpu_ns = 0;       // cpu of the whole process
  int64_t lag_max_ns = 0;                // longest stretch between two waits
  int64_t reads = 0;
};

class Network {
 public:
  // url: any URL of the server; epoch_ns: origin of every stamp.
  Network(std::string url, http::ConnectionOptions options, Timeouts timeouts, int64_t epoch_ns);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Makes n connections ready: opens missing ones, proves idle ones with ping (a GET request) and replaces dead ones. Not timed.
  // Slots that could not be opened end as connect_error in run().
  void prepare(size_t n, const std::string& ping);
  // Runs all requests to their end. Without schedules all are released together, in order, on connections 0..n-1 (the barrier);
  // with schedules each takes a free connection when its time has come, late when there is none. A closed loop is a schedule of zeros
  // on fewer connections. Connections that the server closes are replaced while scheduled requests wait.
  std::vector<Capture> run(const std::vector<Outgoing>& requests);
  const LoopStats& stats() const { return stats_; }
  Live& live() { return live_; }
  // run() ends every live stream as kAborted once this returns true; stop_fd (may be -1) wakes the loop.
  void set_stop(std::function<bool()> stop, int stop_fd);
  // Every request opens a connection of its own after its release, so that the handshake is inside its time.
  void set_new_connections(bool on) { new_connections_ = on; }

 private:
  struct Link;
  struct Stream;
  class Loop;

  std::string url_;
  http::ConnectionOptions options_;
  Timeouts timeouts_;
  int64_t epoch_ns_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::string> open_errors_;
  LoopStats stats_;
  Live live_;
  std::function<bool()> stop_;
  int stop_fd_ = -1;
  bool new_connections_ = false;
};

}  // namespace dsf::bench
