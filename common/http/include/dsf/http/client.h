#pragma once
// HTTP client on libcurl: one Client per thread keeps its connections alive between requests. No retries here: policies
// belong to the caller (hub, bench). Errors: kRemote for transport failures (cls names it: "dns", "connect", "timeout",
// "reset", "short_body", "tls", and the permanent ones "tls_cert", "protocol", "redirect", "too_large"), kLocal
// "stopped" when a callback returns false, kUsage for a malformed URL or header. A status such as 404 is not an Error:
// look at Response::status. Error lines never show the query of a URL (signed URLs are secrets). Loopback hosts are
// reached without a proxy, always.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::http {

using Headers = std::vector<std::pair<std::string, std::string>>;
// First header of that name, case-insensitive; empty when absent.
std::string_view find_header(const Headers& headers, std::string_view name);

struct Response {
  int status = 0;
  std::string version;        // "1.1", "2"
  Headers headers;            // of the last response
  std::string body;           // empty when on_body took it
  std::string effective_url;  // after redirects
  int64_t sent_ns = 0;        // monotonic: request written
  int64_t first_byte_ns = 0;  // monotonic: first header byte
};

struct Request {
  std::string method = "GET", url;
  Headers headers;
  std::string body;
  bool follow_redirects = false;  // when true, Authorization is dropped on a change of host, port or scheme
  int64_t connect_timeout_us = 10'000'000;
  int64_t stall_timeout_us = 30'000'000;         // no byte in either direction for that long
  int64_t total_timeout_us = 0;                  // 0: none
  uint64_t max_body_bytes = uint64_t{64} << 20;  // for Response::body only
  // Called with the status and headers before the first body byte; return false to stop.
  std::function<bool(const Response&)> on_headers;
  // Takes the body as it arrives, on the calling thread; read_ns is the monotonic time at which the bytes were handed
  // over.
  std::function<bool(std::span<const std::byte>, int64_t read_ns)> on_body;
  // Polled while waiting (at least every 100 ms); return true to give up.
  std::function<bool()> stop;
};

// A speed limit for the bodies of any number of clients together; any thread may pay. libcurl's own reads far ahead
// before it begins to wait; sleeping between blocks holds the peer back by its full window.
class Pace {
 public:
  explicit Pace(int64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}  // > 0
  // Sleeps until bytes may have passed, whoever else paid before. False when stop said so meanwhile.
  bool pay(size_t bytes, const std::function<bool()>& stop);

 private:
  const int64_t bytes_per_s_;
  std::mutex mutex_;
  int64_t paid_until_ns_ = 0;
};

struct ClientOptions {
  std::string user_agent;
  std::string ca_bundle;       // file of PEM certificates; empty: system
  std::string ca_dir;          // folder of hashed certificates; empty: system
  std::string proxy;           // empty: from the environment
  std::shared_ptr<Pace> pace;  // none: as fast as bytes come
  bool verify_tls = true;
};

class Client {
 public:
  explicit Client(ClientOptions options = {});
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  Result<Response> perform(const Request& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Url {
  std::string scheme, host, port, path,
      query;  // lower-case scheme and host; port empty when not given; path starts with '/'
};
// http and https only; a fragment is dropped. Errors (kUsage): other schemes, credentials inside, spaces or control
// characters.
Result<Url> parse_url(std::string_view url);
std::string to_string(const Url& url);
// "https://host:443": what has to be equal before a credential may be sent.
std::string origin(const Url& url);
// Absolute form of a Location or Link target, relative ones against base.
Result<Url> resolve_url(const Url& base, std::string_view reference);
// scheme://host/path, and "?..." when there is a query: for logs and errors.
std::string redacted(std::string_view url);
bool is_loopback_host(std::string_view host);                                   // localhost, 127.0.0.0/8, [::1]
std::string percent_encode(std::string_view text, std::string_view keep = "");  // unreserved characters and keep stay
std::string percent_decode(std::string_view text);

}  // namespace dsf::http
