#pragma once
// Opens connections beside the measuring loop: each on a thread of its own, so that a slow handshake delays nobody. The loop learns through an
// event descriptor. open() and take() belong to one thread; the destructor waits for what is still being opened.
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dsf/http/connection.h"

namespace dsf::bench {

class Opener {
 public:
  Opener(std::string url, http::ConnectionOptions options);
  ~Opener();
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  struct Opened {
    size_t tag;
    Result<http::Connection> connection;
  };
  void open(size_t tag);
  std::vector<Opened> take();          // what has been opened or has failed since the last call
  int fd() const { return event_fd_; }  // readable when take() has something
  size_t pending() const { return pending_; }

 private:
  std::string url_;
  http::ConnectionOptions options_;
  int event_fd_;
  size_t pending_ = 0;
  std::mutex mutex_;
  std::vector<Opened> done_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace dsf::bench
