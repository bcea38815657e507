#include "dsf/http/server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

#include "dsf/base/scope.h"
#include "server_connection.h"

namespace dsf::http {
namespace {

constexpr int kRefusing = 32;  // threads that only answer 503; beyond them a connection is closed unread

std::string address_text(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) !=
      0)
    return "unknown";
  const std::string_view name(host.data());
  const bool v6 = name.find(':') != std::string_view::npos;
  return (v6 ? "[" : "") + std::string(name) + (v6 ? "]:" : ":") + port.data();
}

std::string errno_words() { return std::error_code(errno, std::generic_category()).message(); }

Result<int> bind_one(const addrinfo& address, const std::string& subject) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
  if (fd < 0) return fail(Code::kLocal, subject, "cannot create a socket: " + errno_words());
  ScopeExit closer([fd] { ::close(fd); });
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, address.ai_addr, address.ai_addrlen) != 0 || ::listen(fd, 128) != 0) {
    if (errno == EADDRINUSE)
      return fail(Code::kBusy, subject, "address in use", "choose another port or stop the other server");
    return fail(Code::kLocal, subject, "cannot listen: " + errno_words());
  }
  closer.release();
  return fd;
}

Result<int> listen_on(const ServerOptions& options) {
  const std::string subject = options.host + ":" + std::to_string(options.port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (error != 0)
    return fail(Code::kUsage, subject, std::string("cannot resolve the address to listen on: ") + gai_strerror(error));
  const ScopeExit freer([found] { freeaddrinfo(found); });
  return bind_one(*found, subject);
}

class ServerImpl final : public Server {
 public:
  ServerImpl(ServerOptions options, Handler handler, int listen_fd, int stop_fd, int close_fd)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        listen_fd_(listen_fd),
        stop_fd_(stop_fd),
        close_fd_(close_fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
      port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                  : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
    }
    context_ = {&options_, &handler_, &stopping_, stop_fd_};
    acceptor_ = std::jthread([this] { accept_loop(); });
  }

  ~ServerImpl() override {
    stop();
    ::close(stop_fd_);
    ::close(close_fd_);
  }

  uint16_t port() const override { return port_; }

  std::string base_url() const override {
    std::string host = options_.host;
    if (host == "0.0.0.0") host = "127.0.0.1";
    if (host == "::") host = "::1";
    if (host.find(':') != std::string::npos) host = "[" + host + "]";
    return "http://" + host + ":" + std::to_string(port_);
  }

  void stop_accepting() override {
    const std::lock_guard lock(stop_mutex_);
    signal(close_fd_);
    if (acceptor_.joinable()) acceptor_.join();
  }

  void stop() override {
    stopping_ = true;
    stop_accepting();
    signal(stop_fd_);
    const std::lock_guard lock(stop_mutex_);
    threads_.clear();  // joins; the acceptor has ended, so nobody else touches the list
  }

 private:
  struct Thread {
    std::atomic<bool> done = false;
    std::jthread thread;
  };

  static void signal(int event_fd) {
    const uint64_t one = 1;
    while (::write(event_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  void accept_loop() {
    while (true) {
      std::array<pollfd, 2> fds{pollfd{listen_fd_, POLLIN, 0}, pollfd{close_fd_, POLLIN, 0}};
      if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) break;
      if (fds[1].revents != 0) break;
      if (fds[0].revents != 0) accept_one();
    }
    ::close(listen_fd_);
  }

  void accept_one() {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const int fd = accept4(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors or memory: the connection stays in the backlog, so waiting is all that helps.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      return;
    }
    threads_.remove_if([](const Thread& t) { return t.done.load(); });
    const auto running = static_cast<int>(threads_.size());
    if (running >= options_.max_connections + kRefusing) {
      ::close(fd);
      return;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Thread& slot = threads_.emplace_back();
    slot.thread = std::jthread([this, &slot, fd, refuse = running >= options_.max_connections,
                                peer = address_text(reinterpret_cast<sockaddr*>(&address), size)] {
      serve_connection(fd, peer, refuse, context_);
      slot.done = true;
    });
  }

  ServerOptions options_;
  Handler handler_;
  int listen_fd_, stop_fd_, close_fd_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  ConnectionContext context_{};
  std::list<Thread> threads_;  // the acceptor's, until it has ended
  std::mutex stop_mutex_;      // one stopper at a time; guards the joins
  std::jthread acceptor_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(ServerOptions options, Handler handler) {
  DSF_TRY(const int listen_fd, listen_on(options));
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  const int close_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0 || close_fd < 0) {
    const std::string why = errno_words();
    for (const int fd : {listen_fd, stop_fd, close_fd}) {
      if (fd >= 0) ::close(fd);
    }
    return fail(Code::kLocal, options.host, "cannot create an event descriptor: " + why);
  }
  return std::unique_ptr<Server>(
      std::make_unique<ServerImpl>(std::move(options), std::move(handler), listen_fd, stop_fd, close_fd));
}

}  // namespace dsf::http
