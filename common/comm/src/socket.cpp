#include "socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"

namespace dsf::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> resolve(const Endpoint& at, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int e = ::getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &list); e != 0)
    return fail(Code::kUsage, at.host + ":" + at.port, ::gai_strerror(e), "give --rendezvous HOST:PORT of rank 0");
  return AddressList(list, &::freeaddrinfo);
}

// False when the deadline is over first.
bool ready(int fd, short events, int64_t deadline_ns) {
  while (true) {
    const int64_t left = deadline_ns == kNever ? -1 : (deadline_ns - monotonic_ns() + 999'999) / 1'000'000;
    if (deadline_ns != kNever && left <= 0) return false;
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return true;  // the call that follows says what is wrong
  }
}

void prepare(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Wire Socket::send(std::span<const std::byte> bytes, int64_t deadline_ns) const {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    else if (!again()) return Wire::kClosed;
    else if (!ready(fd_, POLLOUT, deadline_ns)) return Wire::kTimeout;
  }
  return Wire::kOk;
}

Wire Socket::receive(std::span<std::byte> bytes, int64_t deadline_ns) const {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    else if (n == 0 || !again()) return Wire::kClosed;
    else if (!ready(fd_, POLLIN, deadline_ns)) return Wire::kTimeout;
  }
  return Wire::kOk;
}

bool Socket::hung_up() const {
  std::byte b{};
  const ssize_t n = ::recv(fd_, &b, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && !again());
}

void Socket::shut() const {
  if (fd_ >= 0) (void)::shutdown(fd_, SHUT_RDWR);
}

Result<Endpoint> parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  Endpoint e;
  if (colon != std::string::npos) e = {text.substr(0, colon), text.substr(colon + 1)};
  if (e.host.size() > 2 && e.host.front() == '[' && e.host.back() == ']') e.host = e.host.substr(1, e.host.size() - 2);
  const auto port = parse_u64(e.port);
  if (e.host.empty() || !port || *port < 1 || *port > 65535)
    return fail(Code::kUsage, "--rendezvous", "'" + text + "' is not HOST:PORT", "give the address of rank 0, for example 10.0.0.1:29571");
  return e;
}

Result<Socket> listen_on(const Endpoint& at, int backlog) {
  DSF_TRY(const AddressList list, resolve(at, AI_PASSIVE));
  int error = 0;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Socket s(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (s.open() && ::setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 && ::bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(s.fd(), backlog) == 0) return s;
    error = errno;
  }
  return fail(Code::kLocal, at.host + ":" + at.port, std::string("cannot listen: ") + std::strerror(error), "rank 0 runs where --rendezvous points to; end what holds the port", "listen");
}

Socket accept_from(const Socket& listener, int64_t deadline_ns) {
  if (!ready(listener.fd(), POLLIN, deadline_ns)) return {};
  Socket s(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (s.open()) prepare(s.fd());
  return s;
}

Result<Socket> dial(const Endpoint& to, int64_t deadline_ns) {
  DSF_TRY(const AddressList list, resolve(to, 0));
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Socket s(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!s.open()) continue;
    int error = 0;
    socklen_t size = sizeof error;
    if (::connect(s.fd(), a->ai_addr, a->ai_addrlen) != 0) {
      if (errno != EINPROGRESS || !ready(s.fd(), POLLOUT, deadline_ns)) continue;
      if (::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) continue;
    }
    prepare(s.fd());
    return s;
  }
  return Socket();
}

}  // namespace dsf::comm
