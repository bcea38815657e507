#pragma once
// What chat and completion requests have in common: sampling, limits, stops, streaming. Parsed and range-checked in one
// place. Plain values. Source: serving.md 4.2, 5.1.
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/api/fields.h"
#include "tools/serve/scheduler/scheduler.h"

namespace dsf::serve {

inline constexpr int kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxChoices = 64;
inline constexpr size_t kMaxStopStrings = 64;  // OpenAI allows 4; more are harmless, unbounded ones are not

struct StreamParams {
  bool on = false;
  bool include_usage = false;     // a last chunk with the usage, usage: null in the others
  bool continuous_usage = false;  // the usage so far in every chunk
};

struct CommonParams {
  std::string model;             // as asked for; empty when absent
  SamplingParams sampling;       // seed and top_logprobs are set later
  std::optional<uint64_t> seed;  // masked to 63 bits
  uint64_t salt = 0;             // of the seed when none is given; set by the caller
  int64_t n = 1;                 // choices of every prompt; each reads it in a session of its own
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::vector<std::string> stop;
  bool include_stop = false;
  std::vector<int32_t> stop_ids;
  bool return_token_ids = false;
  StreamParams stream;
};

// vocab_size bounds token ids. max_tokens_keys: the field names in order of precedence.
ApiResult<CommonParams> parse_common(const json::Value& body, const SamplingParams& defaults, int64_t vocab_size,
                                     const std::vector<std::string_view>& max_tokens_keys);
// A token id of a request, refused unless the vocabulary has it.
ApiResult<int32_t> parse_token_id(const json::Value& value, int64_t vocab_size, const std::string& path);

}  // namespace dsf::serve
