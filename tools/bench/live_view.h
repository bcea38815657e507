#pragma once
// What a person sees while a run goes on: one line, redrawn on a terminal, or an info line every 30 s. A thread of its own that reads
// atomics only, so that the network loop never waits for it.
#include <atomic>
#include <string>
#include <thread>

#include "tools/bench/network.h"

namespace dsf::bench {

class LiveView {
 public:
  LiveView(const Live& live, int64_t planned, bool enabled);
  ~LiveView();
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;
  // Between levels, by the running thread.
  void level(const std::string& phase, const std::string& thinking, int64_t c, int64_t done);

 private:
  void loop(const std::stop_token& stop);
  std::string line(int64_t now_ns, int64_t& last_ns, int64_t& last_events) const;

  const Live& live_;
  int64_t planned_, start_ns_;
  bool terminal_;
  std::atomic<const char*> phase_{""};
  std::atomic<int64_t> thinking_{-1}, c_{0}, done_{0};  // thinking: -1 off, else the effort
  std::jthread thread_;
};

}  // namespace dsf::bench
