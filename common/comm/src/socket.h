#pragma once
// TCP sockets with deadlines. Private to comm. Non-blocking throughout; deadlines are monotonic nanoseconds, kNever waits for ever.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "dsf/base/result.h"

namespace dsf::comm {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

enum class Wire { kOk, kTimeout, kClosed };

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Socket& operator=(Socket&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  Wire send(std::span<const std::byte> bytes, int64_t deadline_ns) const;
  Wire receive(std::span<std::byte> bytes, int64_t deadline_ns) const;
  // Whether the other end has hung up; takes nothing from the stream.
  bool hung_up() const;
  // Ends waits on this socket in other threads.
  void shut() const;

  template <class T>
  Wire send_value(const T& v, int64_t deadline_ns) const { return send(std::as_bytes(std::span(&v, 1)), deadline_ns); }
  template <class T>
  Wire receive_value(T& v, int64_t deadline_ns) const { return receive(std::as_writable_bytes(std::span(&v, 1)), deadline_ns); }

 private:
  int fd_ = -1;
};

struct Endpoint {
  std::string host, port;
};
// "HOST:PORT", "[::1]:29571". Errors: kUsage.
Result<Endpoint> parse_endpoint(const std::string& text);
// Errors: kLocal (address in use, not ours), kUsage for a name that does not resolve.
Result<Socket> listen_on(const Endpoint& at, int backlog);
// The next connection, or an empty socket when none came.
Socket accept_from(const Socket& listener, int64_t deadline_ns);
// One attempt. An empty socket when nobody listens there yet. Errors: kUsage for a name that does not resolve.
Result<Socket> dial(const Endpoint& to, int64_t deadline_ns);

}  // namespace dsf::comm
