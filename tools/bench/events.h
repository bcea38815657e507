#pragma once
// From body bytes to a request record: SSE events, token events, counts, outcome (bench.md 1.1 to 1.4, 4.4). Pure functions, any thread.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/capture.h"
#include "tools/bench/record.h"

namespace dsf::bench {

// Texts that the record keeps only as hashes; needed until the token counts have been checked.
struct StreamText {
  std::string reasoning, content, tools;
  std::vector<uint32_t> token_ids;
  std::string all;  // in order of arrival
};

// Fills everything of r that comes from the server: stamps, events, reads, usage, output, status, flags. r.max_tokens must be set.
StreamText assemble(const Capture& capture, Request& r);

// Token count by /tokenize of the whole text, for a server without usage (bench.md 1.3 source 3).
void apply_tokenized_count(Request& r, int64_t n_tokens);

// Does this event payload hold a token (bench.md 1.2)? Anything malformed does not.
bool is_token_payload(std::string_view data);

// Text with every byte sequence that is not UTF-8 replaced by U+FFFD; for words that go into JSON.
std::string clean_utf8(std::string_view bytes);
int64_t count_code_points(std::string_view utf8);

}  // namespace dsf::bench
