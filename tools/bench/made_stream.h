#pragma once
// Made streams: the event streams of bench.md section 8, and any bytes cut into any reads. For the selftest and the unit tests: what a server
// would send, without a server. Pure functions, any thread.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/capture.h"
#include "tools/bench/events.h"

namespace dsf::bench::made {

struct Piece {
  double at_ms;
  std::string bytes;
};

inline int64_t ms(double v) { return static_cast<int64_t>(v * 1e6 + 0.5); }

// "data: {...}\n\n"
std::string sse_data(std::string_view payload);
std::string role_event();
std::string reasoning_event(std::string_view text, int tokens, bool with_ids = true);
std::string content_event(std::string_view text, int tokens, bool with_ids = true);
std::string finish_event(std::string_view reason);
std::string usage_event(int prompt, int completion, int cached = 0);

// One read per piece.
Capture capture_of(const std::vector<Piece>& pieces, double release_ms = 0);
// The same bytes and the given read sizes (the last one takes the rest); read i happens at i ms.
Capture capture_split(std::string_view bytes, const std::vector<size_t>& sizes);
Request request_of(const Capture& capture, int64_t max_tokens);
// Everything of a record that must not depend on how its bytes were cut into reads, as text.
std::string facts(const Request& r, bool with_comments = true);
// Every occurrence of from, replaced.
std::string replaced(std::string text, std::string_view from, std::string_view to);

// Vector A: reasoning, then content, with drafts.
std::vector<Piece> vector_a(bool with_ids = true);
std::string bytes_of(const std::vector<Piece>& pieces);

// A record of token events only: (ms, weight) pairs with the server's own weights, or uniform ones.
struct Token {
  double at_ms;
  int w;
};
Request tokens_only(double release_ms, const std::vector<Token>& tokens, int prompt, bool known_weights = true);

}  // namespace dsf::bench::made
