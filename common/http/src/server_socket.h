#pragma once
// A connected TCP socket as the server uses it: non-blocking, with deadlines, and a stop descriptor that ends every
// wait. One owner, one thread, except that the stop descriptor is shared.
#include <cstdint>
#include <string>
#include <string_view>

namespace dsf::http {

class Socket {
 public:
  Socket(int fd, int stop_fd) : fd_(fd), stop_fd_(stop_fd) {}
  ~Socket() { close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  enum class Got { kData, kClosed, kTimeout, kStopped };
  // Appends at most 64 KiB to out. Waits until deadline_ns (monotonic), or until the server stops when stoppable.
  Got receive(std::string& out, int64_t deadline_ns, bool stoppable);
  // All of bytes; false once the peer is gone or takes nothing for stall_us.
  bool send_all(std::string_view bytes, int64_t stall_us);
  // The peer closed or reset its side. Bytes that wait to be read do not hide it.
  bool peer_gone() const;
  bool open() const { return fd_ >= 0; }
  void close();
  void reset();  // closes with RST
  // Says that nothing more comes, then reads what the peer still sends, so that closing does not destroy the answer on
  // its way.
  void finish(int64_t linger_us);

 private:
  int fd_;
  int stop_fd_;
};

}  // namespace dsf::http
