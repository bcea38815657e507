#include "dsf/http/response_parser.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "dsf/base/numeric.h"

namespace dsf::http {
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// Does a comma list hold the word, whatever its case?
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = trimmed(list.substr(0, comma));
    if (item.size() == word.size() && std::equal(item.begin(), item.end(), word.begin(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) == b;
        })) {
      return true;
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

size_t ResponseParser::feed(std::string_view bytes, std::string& body) {
  size_t at = 0;
  while (at < bytes.size() && state_ != State::kComplete && state_ != State::kBroken) {
    const std::string_view rest = bytes.substr(at);
    if (state_ == State::kChunkData || state_ == State::kLength) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, rest.size()));
      body.append(rest, 0, n);
      left_ -= n;
      at += n;
      if (left_ == 0) state_ = state_ == State::kChunkData ? State::kChunkEnd : State::kComplete;
    } else if (state_ == State::kUntilClose) {
      body.append(rest);
      at = bytes.size();
    } else {
      bool whole = false;
      at += take_line(rest, state_ == State::kHead || state_ == State::kTrailer ? kMaxHeadBytes : kMaxLineBytes, whole);
      if (whole) on_line();
    }
  }
  return at;
}

void ResponseParser::feed_eof() {
  if (state_ == State::kUntilClose) state_ = State::kComplete;
  keep_alive_ = false;
}

// Gathers a line; whole says that its end was seen and line_ holds it without the line end.
size_t ResponseParser::take_line(std::string_view bytes, size_t limit, bool& whole) {
  const size_t newline = bytes.find('\n');
  const size_t n = newline == std::string_view::npos ? bytes.size() : newline + 1;
  head_bytes_ += state_ == State::kHead || state_ == State::kTrailer ? n : 0;
  if (line_.size() + n > limit || head_bytes_ > kMaxHeadBytes) {
    fail_with("a header or chunk line is too long");
    return n;
  }
  line_.append(bytes, 0, n);
  whole = newline != std::string_view::npos;
  if (whole) {
    line_.pop_back();
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  }
  return n;
}

void ResponseParser::on_line() {
  switch (state_) {
    case State::kHead: line_.empty() ? head_end() : head_line(); break;
    case State::kChunkSize: chunk_size_line(); break;
    case State::kChunkEnd:
      if (line_.empty()) state_ = State::kChunkSize;
      else fail_with("a chunk is longer than its size");
      break;
    case State::kTrailer:
      if (line_.empty()) state_ = State::kComplete;
      break;
    default: break;
  }
  line_.clear();
}

void ResponseParser::head_line() {
  const std::string_view line(line_);
  if (!status_seen_) {
    const uint64_t code = line.size() >= 12 ? parse_u64(line.substr(9, 3)).value_or(0) : 0;
    if (!line.starts_with("HTTP/1.") || line[8] != ' ' || code < 100) return fail_with("not an HTTP/1.1 status line");
    version_ = std::string(line.substr(5, 3));
    status_ = static_cast<int>(code);
    status_seen_ = true;
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return fail_with("a header line without a name");
  headers_.emplace_back(std::string(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1))));
}

void ResponseParser::head_end() {
  if (!status_seen_) return;  // empty lines before the status line
  if (status_ < 200) {        // interim: the real answer follows
    status_seen_ = false;
    headers_.clear();
    return;
  }
  const std::string_view connection = find_header(headers_, "connection");
  keep_alive_ = !has_word(connection, "close") && (version_ != "1.0" || has_word(connection, "keep-alive"));
  if (status_ == 204 || status_ == 304) {
    state_ = State::kComplete;
  } else if (const std::string_view coding = find_header(headers_, "transfer-encoding"); !coding.empty()) {
    if (!has_word(coding, "chunked")) return fail_with("a transfer coding other than chunked");
    state_ = State::kChunkSize;
  } else if (const std::string_view length = find_header(headers_, "content-length"); !length.empty()) {
    const auto n = parse_u64(length);
    if (!n) return fail_with("a content length that is not a number");
    left_ = *n;
    state_ = left_ == 0 ? State::kComplete : State::kLength;
  } else {
    keep_alive_ = false;
    state_ = State::kUntilClose;
  }
}

void ResponseParser::chunk_size_line() {
  uint64_t size = 0;
  size_t digits = 0;
  for (const char c : line_) {
    const int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (v < 0) break;
    if (++digits > 15) return fail_with("a chunk size that is too large");
    size = size * 16 + static_cast<uint64_t>(v);
  }
  const char after = digits < line_.size() ? line_[digits] : ';';
  if (digits == 0 || (after != ';' && after != ' ' && after != '\t')) return fail_with("a chunk size that is not a number");
  left_ = size;
  state_ = size == 0 ? State::kTrailer : State::kChunkData;
}

void ResponseParser::fail_with(std::string why) {
  state_ = State::kBroken;
  why_ = std::move(why);
}

}  // namespace dsf::http
