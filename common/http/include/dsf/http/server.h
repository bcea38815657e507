#pragma once
// A small HTTP/1.1 server on Boost.Beast: one thread per connection, keep-alive, chunked streaming, bounded headers and
// bodies.
//
// The handler runs on the connection's thread and may block. ResponseWriter is used on that thread only. stop() may be
// called from any thread: it stops accepting, lets running handlers end, and joins. Malformed requests are answered
// 400/413/431/505 without the handler.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dsf/base/result.h"
#include "dsf/http/client.h"

namespace dsf::http {

struct ServerRequest {
  std::string method, target;  // target as sent
  std::string path, query;     // path is percent-decoded, query is not
  Headers headers;
  std::string body;
  std::string peer;  // "127.0.0.1:51234"
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // Whole response with Content-Length (a HEAD request sends no body). Each request needs exactly one send() or
  // begin()...end().
  virtual void send(int status, const Headers& headers, std::string_view body) = 0;
  // Streaming. content_length >= 0 sends that header and raw bytes, < 0 uses chunked encoding. write() returns false
  // once the client is gone.
  virtual void begin(int status, const Headers& headers, int64_t content_length = -1) = 0;
  virtual bool write(std::string_view bytes) = 0;
  virtual void end() = 0;
  // The peer closed or reset the connection (polls the socket; cheap).
  virtual bool client_gone() = 0;
  // For test servers: ends the connection at once, with RST when hard.
  virtual void abort(bool hard) = 0;
};

using Handler = std::function<void(const ServerRequest&, ResponseWriter&)>;

// Body of an answer that the server gives itself (malformed request, too many connections).
struct ErrorBody {
  std::string content_type, body;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port
  uint64_t max_body_bytes = uint64_t{64} << 20;
  uint32_t max_header_bytes = 64 << 10;
  int max_connections = 256;             // further ones get 503
  int64_t idle_timeout_us = 75'000'000;  // keep-alive without a request, and slow request headers
  std::function<ErrorBody(int status, std::string_view reason)> error_body;  // empty: plain text
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> listen(ServerOptions options, Handler handler);  // kBusy: address in use
  virtual ~Server() = default;
  virtual uint16_t port() const = 0;
  virtual std::string base_url() const = 0;  // "http://127.0.0.1:8000"
  virtual void stop_accepting() = 0;
  virtual void stop() = 0;  // stop_accepting, wait for handlers, join
};

}  // namespace dsf::http
