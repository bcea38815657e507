#include "dsf/http/connection.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <mutex>
#include <utility>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::http {
namespace {

std::string_view class_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return "dns";
    case CURLE_OPERATION_TIMEDOUT: return "timeout";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE: return "tls";
    default: return "connect";
  }
}

}  // namespace

struct Connection::Impl {
  CURL* easy = nullptr;
  curl_socket_t fd = CURL_SOCKET_BAD;
  std::string remote;
  long local_port = 0;

  Impl() : easy(curl_easy_init()) { DSF_CHECK(easy != nullptr, "libcurl has no memory for a handle"); }
  ~Impl() { curl_easy_cleanup(easy); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void configure(const std::string& origin, const ConnectionOptions& options) {
    curl_easy_setopt(easy, CURLOPT_URL, origin.c_str());
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // keeps h2 out of ALPN
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout_us / 1000));
    curl_easy_setopt(easy, CURLOPT_PROXY, options.proxy.c_str());
    if (!options.ca_bundle.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, options.ca_bundle.c_str());
    if (!options.verify_tls) {
      curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
      curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
  }
};

Connection::Connection() = default;
Connection::~Connection() = default;
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;

Result<Connection> Connection::open(const std::string& url, const ConnectionOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  DSF_TRY(const Url parts, parse_url(url));
  const std::string origin = parts.scheme + "://" + (parts.host.find(':') == std::string::npos ? parts.host : "[" + parts.host + "]") +
                             (parts.port.empty() ? "" : ":" + parts.port) + "/";
  Connection out;
  out.impl_ = std::make_unique<Impl>();
  CURL* easy = out.impl_->easy;
  out.impl_->configure(origin, options);
  const CURLcode rc = curl_easy_perform(easy);
  if (rc != CURLE_OK) {
    return fail(Code::kRemote, origin, curl_easy_strerror(rc), "check the address and that the server runs", std::string(class_of(rc)));
  }
  curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &out.impl_->fd);
  if (out.impl_->fd == CURL_SOCKET_BAD) return fail(Code::kRemote, origin, "the connection was lost at once", "", "connect");
  const char* ip = nullptr;
  long port = 0;
  curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &ip);
  curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &port);
  curl_easy_getinfo(easy, CURLINFO_LOCAL_PORT, &out.impl_->local_port);
  out.impl_->remote = std::string(ip == nullptr ? "" : ip) + ":" + std::to_string(port);
  return out;
}

int Connection::fd() const { return impl_ == nullptr ? -1 : impl_->fd; }
const std::string& Connection::remote() const { return impl_->remote; }
int Connection::local_port() const { return static_cast<int>(impl_->local_port); }

Result<size_t> Connection::send(std::span<const std::byte> data) {
  size_t n = 0;
  const CURLcode rc = curl_easy_send(impl_->easy, data.data(), data.size(), &n);
  if (rc == CURLE_AGAIN) return size_t{0};
  if (rc != CURLE_OK) return fail(Code::kRemote, impl_->remote, "the connection broke while sending", "", "reset");
  return n;
}

Result<std::optional<size_t>> Connection::receive(std::span<std::byte> out) {
  size_t n = 0;
  const CURLcode rc = curl_easy_recv(impl_->easy, out.data(), out.size(), &n);
  if (rc == CURLE_AGAIN) return std::optional<size_t>();
  if (rc != CURLE_OK) return fail(Code::kRemote, impl_->remote, "the connection was reset", "", "reset");
  return std::optional<size_t>(n);
}

}  // namespace dsf::http
