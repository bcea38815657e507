#include "server_parser.h"

#include <algorithm>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::http {
namespace {

namespace beast_http = boost::beast::http;

constexpr size_t kMaxChunkLine = 4096;  // size and extensions of one chunk

bool equal_nocase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

size_t count_fields(const Headers& headers, std::string_view name) {
  return static_cast<size_t>(
      std::count_if(headers.begin(), headers.end(), [&](const auto& h) { return equal_nocase(h.first, name); }));
}

// "HTTP/2.0" is a version we do not speak; "FOO" is not a version.
bool names_other_version(std::string_view block) {
  const std::string_view line = block.substr(0, block.find("\r\n"));
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view word = line.substr(space + 1);
  return word.size() == 8 && word.starts_with("HTTP/") && word[6] == '.' && word[5] >= '0' && word[5] <= '9' &&
         word[7] >= '0' && word[7] <= '9';
}

// Absolute form ("GET http://host/path") keeps only what origin form would say.
std::string_view origin_form(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() > scheme.size() && equal_nocase(target.substr(0, scheme.size()), scheme)) {
      const size_t slash = target.find_first_of("/?", scheme.size());
      return slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
    }
  }
  return target;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

RequestParser::State RequestParser::bad(int status, std::string reason) {
  bad_status_ = status;
  bad_reason_ = std::move(reason);
  return state_ = State::kBad;
}

RequestParser::State RequestParser::feed(std::string_view bytes) {
  if (state_ == State::kBad) return state_;
  pending_.append(bytes);
  return run();
}

RequestParser::State RequestParser::next() {
  DSF_CHECK(state_ == State::kDone, "next() before the request was complete");
  request_ = {};
  state_ = State::kHeader;
  framing_ = Framing::kLength;
  remaining_ = trailer_bytes_ = 0;
  scanned_ = 0;
  http10_ = keep_alive_ = expects_continue_ = false;
  return run();
}

RequestParser::State RequestParser::run() {
  if (state_ == State::kHeader) {
    // Some clients end a body with a stray CRLF; RFC 9112 2.2 asks to skip empty lines before a request line.
    while (pending_.starts_with("\r\n")) {
      pending_.erase(0, 2);
      scanned_ = 0;
    }
    size_t end = 0;
    if (!find_header_end(end)) return state_;
    const std::string block = pending_.substr(0, end);
    pending_.erase(0, end);
    read_header(block);
  }
  if (state_ == State::kBody) read_body();
  if (state_ == State::kDone || state_ == State::kBody) {
    if (!request_.body.empty()) expects_continue_ = false;
  }
  return state_;
}

bool RequestParser::find_header_end(size_t& end) {
  while (true) {
    const size_t lf = pending_.find('\n', scanned_);
    const size_t seen = lf == std::string::npos ? pending_.size() : lf + 1;
    if (seen > max_header_bytes_) return bad(431, "request header larger than the limit"), false;
    if (lf == std::string::npos) {
      scanned_ = pending_.size();
      return false;
    }
    if (lf == 0 || pending_[lf - 1] != '\r') return bad(400, "line feed without carriage return in the header"), false;
    scanned_ = lf + 1;
    if (lf >= 3 && pending_.compare(lf - 3, 4, "\r\n\r\n") == 0) {
      end = lf + 1;
      return true;
    }
  }
}

void RequestParser::read_header(std::string_view block) {
  if (block.find("\r\n ") != std::string_view::npos || block.find("\r\n\t") != std::string_view::npos) {
    bad(400, "folded header line");
    return;
  }
  if (!read_fields(block) || !check_framing()) return;
  const std::string_view target = origin_form(request_.target);
  const size_t question = target.find('?');
  request_.path = percent_decode(target.substr(0, question));
  if (question != std::string_view::npos) request_.query = std::string(target.substr(question + 1));
  const std::string_view expect = request_.header("Expect");
  if (!expect.empty() && !equal_nocase(expect, "100-continue")) {
    bad(417, "unknown expectation");
    return;
  }
  const bool has_body = state_ == State::kBody;
  expects_continue_ = has_body && !expect.empty() && !http10_;
}

bool RequestParser::read_fields(std::string_view block) {
  beast_http::request_parser<beast_http::empty_body> parser;
  parser.header_limit(max_header_bytes_ + 1);
  parser.body_limit(UINT64_MAX);  // "none" means zero to Boost 1.74; the limit is check_framing()'s
  boost::system::error_code error;
  const size_t used = parser.put(boost::asio::const_buffer(block.data(), block.size()), error);
  if (error == beast_http::error::need_more) error = {};  // wants the body, which is not its business
  if (error || !parser.is_header_done() || used > block.size()) {
    if (error == beast_http::error::bad_version && names_other_version(block))
      return bad(505, "HTTP/1.1 is spoken here"), false;
    return bad(400, error ? "malformed request: " + error.message() : "malformed request"), false;
  }
  const auto& message = parser.get();
  request_.method = std::string(message.method_string());
  request_.target = std::string(message.target());
  for (const auto& field : message)
    request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  http10_ = message.version() < 11;
  keep_alive_ = message.keep_alive();
  return true;
}

// Decides how the body ends, and refuses every header that two readers could take differently.
bool RequestParser::check_framing() {
  const size_t n_host = count_fields(request_.headers, "Host");
  if (n_host > 1 || (n_host == 0 && !http10_)) return bad(400, "exactly one Host header is required"), false;
  const size_t n_length = count_fields(request_.headers, "Content-Length");
  const size_t n_coding = count_fields(request_.headers, "Transfer-Encoding");
  if (n_length + n_coding > 1) return bad(400, "ambiguous body length"), false;
  if (n_coding == 1) {
    if (http10_ || !equal_nocase(request_.header("Transfer-Encoding"), "chunked"))
      return bad(400, "unsupported transfer coding"), false;
    framing_ = Framing::kChunkSize;
    state_ = State::kBody;
    return true;
  }
  if (n_length == 1) {
    const auto length = parse_u64(request_.header("Content-Length"));
    if (!length) return bad(400, "malformed Content-Length"), false;
    if (*length > max_body_bytes_) return bad(413, "request body larger than the limit"), false;
    remaining_ = *length;
  }
  framing_ = Framing::kLength;
  state_ = remaining_ > 0 ? State::kBody : State::kDone;
  return true;
}

// Consumes what it can of pending_: once at the end, so that a body of many small chunks stays linear.
void RequestParser::read_body() {
  size_t at = 0;
  while (state_ == State::kBody && body_step(at)) {
  }
  pending_.erase(0, at);
}

// One piece of the body, starting at pending_[at]; false when it needs more bytes than there are, or the request is
// bad.
bool RequestParser::body_step(size_t& at) {
  if (framing_ == Framing::kLength || framing_ == Framing::kChunkData) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(remaining_, pending_.size() - at));
    request_.body.append(pending_, at, n);
    at += n;
    remaining_ -= n;
    if (remaining_ > 0) return false;
    if (framing_ == Framing::kLength) {
      state_ = State::kDone;
    } else {
      framing_ = Framing::kChunkEnd;
    }
    return true;
  }
  if (framing_ == Framing::kChunkEnd) {
    if (pending_.size() - at < 2) return false;
    if (pending_.compare(at, 2, "\r\n") != 0) return bad(400, "chunk without its end"), false;
    at += 2;
    framing_ = Framing::kChunkSize;
    return true;
  }
  const size_t limit = framing_ == Framing::kTrailer ? max_header_bytes_ : kMaxChunkLine;
  const size_t lf = pending_.find('\n', at);
  const size_t length = (lf == std::string::npos ? pending_.size() : lf + 1) - at;
  if (length > limit) return bad(400, "chunk header or trailer larger than the limit"), false;
  if (lf == std::string::npos) return false;
  if (length < 2 || pending_[lf - 1] != '\r')
    return bad(400, "line feed without carriage return in the chunked body"), false;
  const std::string_view line = std::string_view(pending_).substr(at, length - 2);
  at += length;
  return framing_ == Framing::kTrailer ? read_trailer_line(line) : read_chunk_line(line);
}

bool RequestParser::read_chunk_line(std::string_view line) {
  const std::string_view digits = line.substr(0, line.find_first_of("; \t"));
  if (digits.empty() || digits.size() > 15) return bad(400, "malformed chunk size"), false;
  uint64_t size = 0;
  for (const char c : digits) {
    const int value = hex_digit(c);
    if (value < 0) return bad(400, "malformed chunk size"), false;
    size = size * 16 + static_cast<uint64_t>(value);
  }
  const std::string_view rest = line.substr(digits.size());
  const size_t semicolon = rest.find_first_not_of(" \t");
  if (semicolon != std::string_view::npos && rest[semicolon] != ';') return bad(400, "malformed chunk size"), false;
  if (size > max_body_bytes_ - request_.body.size()) return bad(413, "request body larger than the limit"), false;
  remaining_ = size;
  framing_ = size == 0 ? Framing::kTrailer : Framing::kChunkData;
  return true;
}

// Trailer fields are read over: nothing here uses them, and merging them into the header is how framing gets smuggled.
bool RequestParser::read_trailer_line(std::string_view line) {
  if (line.empty()) {
    state_ = State::kDone;
    return true;
  }
  trailer_bytes_ += line.size() + 2;
  if (trailer_bytes_ > max_header_bytes_) return bad(431, "trailer larger than the limit"), false;
  if (line.find(':') == std::string_view::npos) return bad(400, "malformed trailer"), false;
  return true;
}

}  // namespace dsf::http
