#pragma once
// Fate: beats between this rank and its peers on connections of their own, read by one monitor thread. Private to comm.
//
// The thread never calls anything but sockets and the two callbacks, so it lives on whatever the engine waits for. A peer is lost when its
// connection ends without a STOP, when it says FAIL, or when nothing came for silence_us. A monitor that was itself kept from running forgives
// the time it lost. Source: cluster.md 1.15 (BEAT, STOP, FAIL), 4.2.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "socket.h"

namespace dsf::comm {

class Fate {
 public:
  struct Peer {
    int rank = 0;
    Socket socket;
  };
  // lost: called once, from the monitor thread, with the first fault. The peers have been told by then.
  Fate(std::vector<Peer> peers, int64_t silence_us, std::function<void(const Error&)> lost);
  ~Fate();  // says STOP

  // Tells every peer that this rank has failed. From any thread; does not block.
  void fail_all(const std::string& reason);

 private:
  struct Watched {
    Peer peer;
    int64_t heard_ns = 0;
    bool stopped = false;
    std::string text;  // received, not yet a whole line
  };
  void run(const std::stop_token& stop);
  void send_line(const std::string& line);
  // The fault that this peer's socket shows, if any.
  std::optional<Error> read(Watched& w);

  const int64_t silence_us_;
  std::function<void(const Error&)> lost_;
  std::mutex sending_;  // guards the sockets' sending side
  std::vector<Watched> watched_;
  std::jthread thread_;
};

}  // namespace dsf::comm
