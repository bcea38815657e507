#pragma once
// Watches a stream for its first token event while it runs, for the first-token time limit only. Stops looking once it has seen one, so
// that the measured part of a stream costs nothing. Not used for any number: those come from events.h after the level.
#include <string_view>

#include "tools/bench/events.h"
#include "tools/bench/sse.h"

namespace dsf::bench {

class FirstTokenWatch {
 public:
  FirstTokenWatch() : parser_([this](SseEvent&& e) { seen_ = seen_ || is_token_payload(e.data); }) {}
  FirstTokenWatch(const FirstTokenWatch&) = delete;
  FirstTokenWatch& operator=(const FirstTokenWatch&) = delete;
  void feed(std::string_view body_bytes) {
    if (!seen_ && !body_bytes.empty()) parser_.feed(body_bytes, 0);
  }
  bool seen() const { return seen_; }

 private:
  bool seen_ = false;
  SseParser parser_;
};

}  // namespace dsf::bench
