#include "server_connection.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>

#include "dsf/base/time.h"
#include "server_parser.h"
#include "server_socket.h"

namespace dsf::http {
namespace {

constexpr int64_t kLingerUs = 1'000'000;
constexpr int64_t kMinBodyBytesPerSecond = 32 << 10;  // slower senders run into the deadline

std::string_view reason_phrase(int status) {
  struct Row {
    int status;
    std::string_view phrase;
  };
  static constexpr std::array kRows{Row{200, "OK"},
                                    Row{201, "Created"},
                                    Row{202, "Accepted"},
                                    Row{204, "No Content"},
                                    Row{206, "Partial Content"},
                                    Row{301, "Moved Permanently"},
                                    Row{302, "Found"},
                                    Row{304, "Not Modified"},
                                    Row{307, "Temporary Redirect"},
                                    Row{308, "Permanent Redirect"},
                                    Row{400, "Bad Request"},
                                    Row{401, "Unauthorized"},
                                    Row{403, "Forbidden"},
                                    Row{404, "Not Found"},
                                    Row{405, "Method Not Allowed"},
                                    Row{408, "Request Timeout"},
                                    Row{413, "Content Too Large"},
                                    Row{416, "Range Not Satisfiable"},
                                    Row{417, "Expectation Failed"},
                                    Row{429, "Too Many Requests"},
                                    Row{431, "Request Header Fields Too Large"},
                                    Row{500, "Internal Server Error"},
                                    Row{501, "Not Implemented"},
                                    Row{502, "Bad Gateway"},
                                    Row{503, "Service Unavailable"},
                                    Row{504, "Gateway Timeout"},
                                    Row{505, "HTTP Version Not Supported"}};
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.status == status; });
  return row == kRows.end() ? std::string_view("Status") : row->phrase;
}

std::string date_header() {
  const time_t now = static_cast<time_t>(unix_time_ms() / 1000);
  tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  const size_t n = strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), n};
}

// A header value that came from a request must not start a new line of the response.
void append_header(std::string& head, std::string_view name, std::string_view value) {
  head.append(name).append(": ");
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? ' ' : c;
  head += "\r\n";
}

bool body_forbidden(int status) { return status < 200 || status == 204 || status == 304; }

class Writer final : public ResponseWriter {
 public:
  Writer(Socket& socket, const std::atomic<bool>& stopping, int64_t stall_us, bool head, bool http10, bool keep_alive)
      : socket_(socket),
        stopping_(stopping),
        stall_us_(stall_us),
        head_(head),
        http10_(http10),
        keep_alive_(keep_alive) {}

  void send(int status, const Headers& headers, std::string_view body) override {
    if (phase_ != Phase::kIdle) return;
    const bool forbidden = body_forbidden(status);
    std::string out = head_of(status, headers);
    if (!forbidden) append_header(out, "Content-Length", std::to_string(body.size()));
    out += "\r\n";
    if (!head_ && !forbidden) out += body;
    phase_ = Phase::kDone;
    put(out);
  }

  void begin(int status, const Headers& headers, int64_t content_length) override {
    if (phase_ != Phase::kIdle) return;
    phase_ = Phase::kStreaming;
    no_body_ = head_ || body_forbidden(status);
    chunked_ = content_length < 0 && !http10_;
    if (content_length < 0 && http10_) keep_alive_ = false;  // the end of the connection is the end of the body
    left_ = content_length;
    std::string out = head_of(status, headers);
    if (content_length >= 0) append_header(out, "Content-Length", std::to_string(content_length));
    if (chunked_ && !body_forbidden(status)) append_header(out, "Transfer-Encoding", "chunked");
    put(out + "\r\n");
  }

  bool write(std::string_view bytes) override {
    if (phase_ != Phase::kStreaming) return false;
    if (no_body_ || bytes.empty()) return socket_.open() && !broken_;
    if (!chunked_) {
      if (left_ >= 0) {
        bytes = bytes.substr(0, static_cast<size_t>(left_));
        left_ -= static_cast<int64_t>(bytes.size());
      }
      return put(bytes);
    }
    static constexpr char kHex[] = "0123456789abcdef";
    std::string size;
    for (size_t n = bytes.size(); n > 0; n >>= 4) size.insert(size.begin(), kHex[n & 15]);
    return put(size.append("\r\n").append(bytes).append("\r\n"));
  }

  void end() override {
    if (phase_ != Phase::kStreaming) return;
    phase_ = Phase::kDone;
    if (no_body_) return;
    if (chunked_) {
      put("0\r\n\r\n");
    } else if (left_ > 0) {
      keep_alive_ = false;  // shorter than promised: the peer learns it from the closed connection
    }
  }

  bool client_gone() override { return broken_ || socket_.peer_gone(); }

  void abort(bool hard) override {
    phase_ = Phase::kDone;
    broken_ = true;
    keep_alive_ = false;
    hard ? socket_.reset() : socket_.close();
  }

  bool untouched() const { return phase_ == Phase::kIdle; }
  bool finished() const { return phase_ == Phase::kDone; }
  bool keep_alive() const { return keep_alive_ && !broken_; }
  void drop_keep_alive() { keep_alive_ = false; }

 private:
  enum class Phase { kIdle, kStreaming, kDone };

  std::string head_of(int status, const Headers& headers) {
    if (stopping_) keep_alive_ = false;
    std::string out = "HTTP/1.1 " + std::to_string(status) + " ";
    out.append(reason_phrase(status)).append("\r\n");
    append_header(out, "Date", date_header());
    for (const auto& [name, value] : headers) append_header(out, name, value);
    if (!keep_alive_ || (http10_ && chunked_)) {
      append_header(out, "Connection", "close");
    } else if (http10_) {
      append_header(out, "Connection", "keep-alive");
    }
    return out;
  }

  bool put(std::string_view bytes) {
    if (!broken_ && !socket_.send_all(bytes, stall_us_)) broken_ = true;
    return !broken_;
  }

  Socket& socket_;
  const std::atomic<bool>& stopping_;
  int64_t stall_us_;
  bool head_, http10_, keep_alive_;
  Phase phase_ = Phase::kIdle;
  bool chunked_ = false, no_body_ = false, broken_ = false;
  int64_t left_ = -1;
};

class Connection {
 public:
  Connection(int fd, std::string peer, const ConnectionContext& context)
      : socket_(fd, context.stop_fd),
        peer_(std::move(peer)),
        context_(context),
        parser_(context.options->max_header_bytes, context.options->max_body_bytes) {}

  void run() {
    bool more = true;
    while (more) more = read_request() && answer();
    socket_.finish(kLingerUs);
  }

  void refuse() {
    reply_error(503, "too many connections");
    socket_.finish(kLingerUs);
  }

 private:
  // True with a complete request in the parser; otherwise the connection has been answered as far as it deserves.
  bool read_request() {
    const int64_t idle_us = context_.options->idle_timeout_us;
    const int64_t start_ns = monotonic_ns();
    int64_t body_start_ns = 0;
    std::string bytes;
    while (true) {
      if (parser_.state() == RequestParser::State::kDone) return true;
      if (parser_.state() == RequestParser::State::kBad) return reply_error(parser_.bad_status(), parser_.bad_reason());
      int64_t deadline_ns = start_ns + idle_us * 1000;
      if (parser_.state() == RequestParser::State::kBody) {
        if (body_start_ns == 0) body_start_ns = monotonic_ns();
        const auto got = static_cast<int64_t>(parser_.body_bytes());
        deadline_ns = body_start_ns + idle_us * 1000 + got * 1'000'000'000 / kMinBodyBytesPerSecond;
        if (parser_.expects_continue() && !continued_) {
          continued_ = true;
          if (!socket_.send_all("HTTP/1.1 100 Continue\r\n\r\n", idle_us)) return false;
        }
      }
      bytes.clear();
      switch (socket_.receive(bytes, deadline_ns, true)) {
        case Socket::Got::kData:
          parser_.feed(bytes);
          break;
        case Socket::Got::kTimeout:
          return parser_.started() ? reply_error(408, "the request did not arrive in time") : false;
        case Socket::Got::kClosed:
        case Socket::Got::kStopped:
          return false;
      }
    }
  }

  // Runs the handler; true when another request may follow on this connection.
  bool answer() {
    ServerRequest request = std::move(parser_.request());
    request.peer = peer_;
    Writer writer(socket_, *context_.stopping, context_.options->idle_timeout_us, request.method == "HEAD",
                  parser_.http10(), parser_.keep_alive());
    try {
      (*context_.handler)(request, writer);
    } catch (const std::exception&) {
      // The handler turns its own failures into responses; what arrives here is a bug in it, and the peer must not take
      // half an answer for a whole one.
      if (!writer.untouched()) writer.abort(true);
    }
    if (writer.untouched()) {
      writer.drop_keep_alive();
      writer.send(500, {{"Content-Type", "text/plain"}}, "no response\n");
    }
    if (!writer.finished()) writer.abort(true);
    if (!writer.keep_alive() || context_.stopping->load()) return false;
    continued_ = false;
    parser_.next();
    return true;
  }

  bool reply_error(int status, const std::string& why) {
    Writer writer(socket_, *context_.stopping, kLingerUs, false, false, false);
    const ErrorBody body =
        context_.options->error_body ? context_.options->error_body(status, why) : ErrorBody{"text/plain", why + "\n"};
    writer.send(status, {{"Content-Type", body.content_type}}, body.body);
    return false;
  }

  Socket socket_;
  std::string peer_;
  const ConnectionContext& context_;
  RequestParser parser_;
  bool continued_ = false;
};

}  // namespace

void serve_connection(int fd, std::string peer, bool refuse, const ConnectionContext& context) {
  Connection connection(fd, std::move(peer), context);
  refuse ? connection.refuse() : connection.run();
}

}  // namespace dsf::http
