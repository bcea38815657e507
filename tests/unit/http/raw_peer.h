#pragma once
// A bare TCP peer for tests: sends exactly the bytes it is given, when it is told to.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

namespace dsf::test {

class RawPeer {
 public:
  explicit RawPeer(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~RawPeer() { close(); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // What arrives until text holds `until`, the peer closes, or timeout_ms pass without a byte.
  std::string receive(std::string_view until = {}, int timeout_ms = 5000) {
    std::string text;
    while (until.empty() || text.find(until) == std::string::npos) {
      pollfd fd{fd_, POLLIN, 0};
      if (poll(&fd, 1, timeout_ms) <= 0) break;
      std::array<char, 65536> bytes;
      const ssize_t n = recv(fd_, bytes.data(), bytes.size(), 0);
      if (n < 0) reset_ = true;
      if (n <= 0) break;
      text.append(bytes.data(), static_cast<size_t>(n));
    }
    return text;
  }
  // The peer has closed: nothing but its end arrives.
  bool closed(int timeout_ms = 5000) {
    pollfd fd{fd_, POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) <= 0) return false;
    char byte;
    const ssize_t n = recv(fd_, &byte, 1, 0);
    if (n < 0) reset_ = true;
    return n <= 0;
  }
  bool was_reset() const { return reset_; }
  void half_close() { shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  bool connected_ = false, reset_ = false;
};

}  // namespace dsf::test
