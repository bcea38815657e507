#include "server_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "dsf/base/time.h"

namespace dsf::http {
namespace {

constexpr size_t kReadBytes = 64 << 10;

int wait_ms(int64_t deadline_ns) {
  const int64_t left_ms = (deadline_ns - monotonic_ns() + 999'999) / 1'000'000;
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000));
}

}  // namespace

Socket::Got Socket::receive(std::string& out, int64_t deadline_ns, bool stoppable) {
  while (fd_ >= 0) {
    std::array<pollfd, 2> fds{pollfd{fd_, POLLIN, 0}, pollfd{stoppable ? stop_fd_ : -1, POLLIN, 0}};
    const int n = poll(fds.data(), fds.size(), wait_ms(deadline_ns));
    if (n < 0 && errno != EINTR) return Got::kClosed;
    if (n > 0 && fds[1].revents != 0) return Got::kStopped;
    if (n > 0 && fds[0].revents != 0) {
      const size_t had = out.size();
      out.resize(had + kReadBytes);
      const ssize_t got = recv(fd_, out.data() + had, kReadBytes, 0);
      const int error = errno;
      out.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got > 0) return Got::kData;
      if (got == 0 || (error != EAGAIN && error != EWOULDBLOCK && error != EINTR)) return Got::kClosed;
    }
    if (monotonic_ns() >= deadline_ns) return Got::kTimeout;
  }
  return Got::kClosed;
}

bool Socket::send_all(std::string_view bytes, int64_t stall_us) {
  int64_t deadline_ns = monotonic_ns() + stall_us * 1000;
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      deadline_ns = monotonic_ns() + stall_us * 1000;
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    pollfd fd{fd_, POLLOUT, 0};
    if (poll(&fd, 1, wait_ms(deadline_ns)) < 0 && errno != EINTR) return false;
    if (monotonic_ns() >= deadline_ns) return false;
  }
  return fd_ >= 0;
}

bool Socket::peer_gone() const {
  if (fd_ < 0) return true;
  pollfd fd{fd_, POLLRDHUP, 0};
  return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLERR | POLLHUP | POLLNVAL)) != 0;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Socket::reset() {
  if (fd_ < 0) return;
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void Socket::finish(int64_t linger_us) {
  if (fd_ < 0) return;
  shutdown(fd_, SHUT_WR);
  const int64_t deadline_ns = monotonic_ns() + linger_us * 1000;
  std::string ignored;
  while (receive(ignored, deadline_ns, true) == Got::kData) ignored.clear();
  close();
}

}  // namespace dsf::http
