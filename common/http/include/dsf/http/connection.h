#pragma once
// A raw client connection for measurement: bytes out, bytes in, TLS when the URL says https, nothing else.
//
// Client (client.h) is the way to make requests. A benchmark cannot use it: libcurl splits one read into one callback for each HTTP
// chunk, polls every handle of a multi at each wake-up, and silently repeats a request when a reused connection turns out dead. Here
// the caller owns the socket loop, so a read has one time stamp, and a lost connection is an outcome. Opened by libcurl
// (CURLOPT_CONNECT_ONLY), so names, proxies and certificates behave as they do for Client. Movable, one thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dsf/base/result.h"
#include "dsf/http/client.h"

namespace dsf::http {

struct ConnectionOptions {
  int64_t connect_timeout_us = 10'000'000;
  std::string proxy;       // empty: none, whatever the environment says
  std::string ca_bundle;   // empty: system
  bool verify_tls = true;
};

class Connection {
 public:
  // Blocks until the connection (and TLS) is up. Errors: kRemote with the cls of Client ("dns", "connect", "timeout", "tls", ...).
  static Result<Connection> open(const std::string& url, const ConnectionOptions& options);
  Connection();
  ~Connection();
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;

  int fd() const;  // non-blocking; for epoll. -1 when closed
  // Bytes taken by the socket; 0 means "would block". Errors: kRemote "reset".
  Result<size_t> send(std::span<const std::byte> data);
  // Bytes read; nullopt means "would block", 0 means the peer closed. Errors: kRemote "reset". With TLS, call until nullopt: decrypted
  // bytes do not make the socket readable.
  Result<std::optional<size_t>> receive(std::span<std::byte> out);
  const std::string& remote() const;  // "127.0.0.1:8000"
  int local_port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dsf::http
