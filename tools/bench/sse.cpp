#include "tools/bench/sse.h"

#include <utility>

namespace dsf::bench {

SseParser::SseParser(Sink sink, size_t max_event_bytes) : sink_(std::move(sink)), max_event_bytes_(max_event_bytes) {}

bool SseParser::feed(std::string_view bytes, int64_t read_index) {
  size_t at = 0;
  while (at < bytes.size() && !too_large_) {
    if (skip_newline_) {
      skip_newline_ = false;
      if (bytes[at] == '\n') {
        ++at;
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n", at);
    const size_t stop = end == std::string_view::npos ? bytes.size() : end;
    if (line_.size() + data_.size() + (stop - at) > max_event_bytes_) {
      too_large_ = true;
      break;
    }
    line_.append(bytes, at, stop - at);
    if (end == std::string_view::npos) break;
    skip_newline_ = bytes[end] == '\r';
    at = end + 1;
    line_done(read_index);
  }
  return !too_large_;
}

void SseParser::line_done(int64_t read_index) {
  if (std::exchange(first_line_, false) && line_.starts_with("\xEF\xBB\xBF")) line_.erase(0, 3);
  if (line_.empty()) {
    dispatch(read_index);
    return;
  }
  std::string line;
  line.swap(line_);  // not std::exchange: GCC 12 then takes its size for unbounded in find()
  const size_t colon = line.find(':');
  if (colon == 0) {
    sink_({SseEvent::Kind::kComment, {}, line.substr(1), read_index});
    return;
  }
  const std::string_view field = std::string_view(line).substr(0, colon);
  std::string_view value;
  if (colon != std::string::npos) {
    value = std::string_view(line).substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
  }
  if (field == "data") {
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  } else if (field == "event") {
    name_ = value;
  }  // "id", "retry" and unknown fields say nothing about tokens
}

void SseParser::dispatch(int64_t read_index) {
  if (has_data_) sink_({SseEvent::Kind::kData, std::move(name_), std::move(data_), read_index});
  data_.clear();
  name_.clear();
  has_data_ = false;
}

std::optional<SseEvent> SseParser::finish(int64_t read_index) {
  if (!line_.empty()) line_done(read_index);
  if (!has_data_) return std::nullopt;
  has_data_ = false;
  return SseEvent{SseEvent::Kind::kData, std::exchange(name_, {}), std::exchange(data_, {}), read_index};
}

}  // namespace dsf::bench
