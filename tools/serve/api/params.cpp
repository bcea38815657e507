#include "tools/serve/api/params.h"

#include "dsf/base/numeric.h"

namespace dsf::serve {
namespace {

ApiResult<SamplingParams> parse_sampling(const Fields& fields, SamplingParams out, int64_t vocab_size) {
  DSF_API_TRY(out.temperature, fields.number_or("temperature", out.temperature, {.min = 0}));
  DSF_API_TRY(out.top_p, fields.number_or("top_p", out.top_p, {.min = 0, .max = 1, .open_min = true}));
  DSF_API_TRY(out.min_p, fields.number_or("min_p", out.min_p, {.min = 0, .max = 1}));
  DSF_API_TRY(out.top_k, fields.integer_or("top_k", out.top_k, -1));
  if (out.top_k < 0) out.top_k = 0;
  DSF_API_TRY(out.presence_penalty, fields.number_or("presence_penalty", out.presence_penalty, {.min = -2, .max = 2}));
  DSF_API_TRY(out.frequency_penalty,
              fields.number_or("frequency_penalty", out.frequency_penalty, {.min = -2, .max = 2}));
  DSF_API_TRY(out.repetition_penalty,
              fields.number_or("repetition_penalty", out.repetition_penalty, {.min = 0, .open_min = true}));
  DSF_API_TRY(const json::Value* bias, fields.object("logit_bias"));
  if (bias == nullptr) return out;
  const Fields entries(*bias, "logit_bias.");
  for (const auto& [key, value] : bias->as_object()) {
    const auto id = parse_i64(key);
    if (!id) return refuse("logit_bias: " + key + " is not a token id", "logit_bias");
    DSF_API_TRY(const int32_t token, parse_token_id(*id, vocab_size, "logit_bias"));
    DSF_API_TRY(const double weight, entries.number_or(key, 0, {.min = -100, .max = 100}));
    out.logit_bias.emplace_back(token, weight);
  }
  return out;
}

ApiResult<StreamParams> parse_stream(const Fields& fields) {
  StreamParams out;
  DSF_API_TRY(out.on, fields.boolean_or("stream", false));
  DSF_API_TRY(const json::Value* options, fields.object("stream_options"));
  if (options == nullptr) return out;
  if (!out.on) return refuse("stream_options is only allowed when stream is true", "stream_options");
  const Fields inner(*options, "stream_options.");
  DSF_API_TRY(out.include_usage, inner.boolean_or("include_usage", false));
  DSF_API_TRY(out.continuous_usage, inner.boolean_or("continuous_usage_stats", false));
  return out;
}

ApiResult<void> parse_stops(const Fields& fields, int64_t vocab_size, CommonParams& out) {
  DSF_API_TRY(out.stop, fields.strings("stop"));
  if (out.stop.size() > kMaxStopStrings)
    return refuse("stop must hold at most " + std::to_string(kMaxStopStrings) + " strings", "stop");
  std::erase(out.stop, std::string());
  DSF_API_TRY(out.include_stop, fields.boolean_or("include_stop_str_in_output", false));
  const json::Value* ids = fields.find("stop_token_ids");
  if (ids == nullptr) return {};
  if (!ids->is_array()) return refuse("stop_token_ids must be a list of token ids", "stop_token_ids");
  for (const json::Value& id : ids->as_array()) {
    DSF_API_TRY(const int32_t token, parse_token_id(id, vocab_size, "stop_token_ids"));
    out.stop_ids.push_back(token);
  }
  return {};
}

}  // namespace

ApiResult<int32_t> parse_token_id(const json::Value& value, int64_t vocab_size, const std::string& path) {
  const auto id = value.to_i64();
  if (!id && !value.is_integer()) return refuse(path + " must hold token ids", path);
  if (!id || *id < 0 || *id >= vocab_size) {
    return refuse(
        "token id " + json::dump(value) + " is outside the vocabulary (0 to " + std::to_string(vocab_size - 1) + ")",
        path);
  }
  return static_cast<int32_t>(*id);
}

ApiResult<CommonParams> parse_common(const json::Value& body, const SamplingParams& defaults, int64_t vocab_size,
                                     const std::vector<std::string_view>& max_tokens_keys) {
  const Fields fields(body);
  CommonParams out;
  DSF_API_TRY(const auto model, fields.string("model"));
  out.model = model.value_or("");
  DSF_API_TRY(out.sampling, parse_sampling(fields, defaults, vocab_size));
  DSF_API_TRY(const auto seed, fields.integer("seed"));
  if (seed) out.seed = static_cast<uint64_t>(*seed) & INT64_MAX;
  for (const std::string_view key : max_tokens_keys) {
    DSF_API_TRY(const auto limit, fields.integer(key, 1));
    if (limit && !out.max_tokens) out.max_tokens = limit;
  }
  DSF_API_TRY(out.min_tokens, fields.integer_or("min_tokens", 0, 0));
  DSF_API_TRY(out.ignore_eos, fields.boolean_or("ignore_eos", false));
  DSF_API_TRY(out.skip_special_tokens, fields.boolean_or("skip_special_tokens", true));
  DSF_API_TRY(out.return_token_ids, fields.boolean_or("return_token_ids", false));
  DSF_API_OK(parse_stops(fields, vocab_size, out));
  DSF_API_TRY(out.stream, parse_stream(fields));
  DSF_API_TRY(out.n, fields.integer_or("n", 1, 1, kMaxChoices));
  if (out.max_tokens && out.min_tokens > *out.max_tokens)
    return refuse("min_tokens must not exceed max_tokens", "min_tokens");
  return out;
}

}  // namespace dsf::serve
