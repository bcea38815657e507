#include "tools/serve/api/completions.h"

#include <algorithm>
#include <utility>

namespace dsf::serve {
namespace {

constexpr size_t kMaxPrompts = 256;

ApiResult<std::vector<int32_t>> parse_ids(const Context& context, const json::Value& list) {
  std::vector<int32_t> out;
  for (const json::Value& item : list.as_array()) {
    DSF_API_TRY(const int32_t id, parse_token_id(item, context.vocab_size(), "prompt"));
    out.push_back(id);
  }
  return out;
}

// A string, a list of ids, or a list of either.
ApiResult<std::vector<std::vector<int32_t>>> parse_prompts(const Context& context, const json::Value* prompt) {
  const auto encode = [&](const std::string& text) {
    return context.tokenizer.encode(text, tokenizer::Specials::kParse);
  };
  using Prompts = std::vector<std::vector<int32_t>>;
  if (prompt != nullptr && prompt->is_string()) return Prompts(1, encode(prompt->as_string()));
  const char* expected = "prompt must be a string, a list of strings, a list of token ids or a list of such lists";
  if (prompt == nullptr || !prompt->is_array()) return refuse(expected, "prompt");
  const json::Array& items = prompt->as_array();
  if (items.empty()) return refuse("prompt must not be empty", "prompt");
  if (items.front().is_number()) {
    DSF_API_TRY(auto ids, parse_ids(context, *prompt));
    return Prompts(1, std::move(ids));
  }
  if (items.size() > kMaxPrompts)
    return refuse("at most " + std::to_string(kMaxPrompts) + " prompts in one request", "prompt");
  Prompts out;
  for (const json::Value& item : items) {
    if (item.is_string()) {
      out.push_back(encode(item.as_string()));
    } else if (item.is_array()) {
      DSF_API_TRY(auto ids, parse_ids(context, item));
      out.push_back(std::move(ids));
    } else {
      return refuse(expected, "prompt");
    }
  }
  return out;
}

const std::vector<int32_t>& prompt_of(const CompletionPlan& plan, size_t choice) {
  return plan.prompts[choice / static_cast<size_t>(plan.common.n)];
}

double finite_logprob(double value) { return std::max(value, -9999.0); }  // JSON has no infinity

}  // namespace

ApiResult<CompletionPlan> plan_completion(const Context& context, const json::Value& body) {
  const Fields fields(body);
  CompletionPlan plan;
  DSF_API_TRY(plan.common, parse_common(body, context.options.defaults, context.vocab_size(),
                                        {"max_tokens", "max_completion_tokens"}));
  if (!context.options.deterministic_seed) plan.common.salt = random_u64();
  DSF_API_OK(check_model(context, plan.common.model));
  if (fields.find("suffix") != nullptr) return refuse("suffix is not supported on this server", "suffix");
  DSF_API_TRY(plan.format, parse_reply_format(fields));
  DSF_API_TRY(const int64_t best_of, fields.integer_or("best_of", 1, 1));
  if (best_of != 1) return refuse("best_of must be 1 on this server (got " + std::to_string(best_of) + ")", "best_of");
  DSF_API_TRY(plan.echo, fields.boolean_or("echo", false));
  DSF_API_TRY(const int64_t logprobs, fields.integer_or("logprobs", -1, 0, kMaxTopLogprobs));
  plan.logprobs = static_cast<int>(logprobs);
  plan.common.sampling.top_logprobs = plan.logprobs;
  DSF_API_TRY(plan.prompts, parse_prompts(context, fields.find("prompt")));
  const tokenizer::TokenId image = context.ids[tokenizer::Control::kImage];
  if (n_choices(plan) > kMaxPrompts)
    return refuse("at most " + std::to_string(kMaxPrompts) + " choices in one request", "n");
  for (const auto& ids : plan.prompts) {
    if (image >= 0 && std::find(ids.begin(), ids.end(), image) != ids.end())
      return refuse("the prompt holds an image token but no image", "prompt");
  }
  return plan;
}

size_t n_choices(const CompletionPlan& plan) { return plan.prompts.size() * static_cast<size_t>(plan.common.n); }

ApiResult<GenerationRequest> completion_request(const Context& context, const CompletionPlan& plan, size_t index) {
  const uint64_t choice = index % static_cast<size_t>(plan.common.n);
  DSF_API_TRY(GenerationRequest out, make_request(context, plan.common, prompt_of(plan, index), "prompt", choice));
  out.prompt_logprobs = plan.echo && plan.logprobs >= 0;
  if (plan.format.grammar == nullptr) return out;
  out.steering.active = true;
  DSF_API_TRY(out.steering.filter, format_filter(context, plan.format));
  return out;
}

TextReply::TextReply(const Context& context, const CompletionPlan& plan, size_t index)
    : context_(context),
      plan_(plan),
      index_(index),
      n_prompt_(static_cast<int64_t>(prompt_of(plan, index).size())),
      eos_(static_cast<int32_t>(context.loop.config().eos_token_id)),
      decoder_(context.tokenizer, plan.common.skip_special_tokens),
      stops_(plan.common.stop, plan.common.include_stop) {
  if (!plan.echo) return;
  text_ = context.tokenizer.decode(prompt_of(plan, index), false);
  // The first token has no context to be predicted from.
  if (plan.logprobs >= 0) add_logprob(Choice{prompt_of(plan, index).front(), 0, {}}, false);
}

json::Value TextReply::opening() { return {}; }

void TextReply::prompt(std::vector<Choice> choices) {
  for (const Choice& c : choices) add_logprob(c, true);
}

void TextReply::add_logprob(const Choice& c, bool known) {
  const auto spelling = [&](int32_t id) { return tokenizer::utf8_lossy(context_.tokenizer.bytes(id)); };
  tokens_.push(spelling(c.id));
  token_logprobs_.push(known ? json::Value(finite_logprob(c.logprob)) : json::Value());
  json::Value top = known ? json::Value::object() : json::Value();
  for (const TokenLogprob& t : c.top) top.set(spelling(t.id), finite_logprob(t.logprob));
  top_logprobs_.push(std::move(top));
  text_offset_.push(offset_);
  // In characters, as OpenAI counts: every byte that does not continue one.
  const std::string_view bytes = context_.tokenizer.bytes(c.id);
  offset_ +=
      std::count_if(bytes.begin(), bytes.end(), [](char b) { return (static_cast<unsigned char>(b) & 0xC0) != 0x80; });
}

bool TextReply::token(const Choice& c) {
  ++n_tokens_;
  if (plan_.logprobs >= 0) add_logprob(c, true);
  if (plan_.common.return_token_ids) ids_.push(c.id);
  const bool silent = c.id == eos_ && !plan_.common.ignore_eos;
  if (!silent) text_ += stops_.push(decoder_.push(c.id));
  return stops_.matched() == nullptr;
}

void TextReply::finish(const End* end) {
  if (stops_.matched() == nullptr) {
    text_ += stops_.push(decoder_.finish());
    text_ += stops_.finish();
  }
  if (stops_.matched() != nullptr) stop_reason_ = *stops_.matched();
  if (end != nullptr && end->reason == EndReason::kLength) finish_ = "length";
  if (end != nullptr && end->reason == EndReason::kStopToken) stop_reason_ = end->stop_token;
  finished_ = true;
}

std::vector<json::Value> TextReply::take_chunks() {
  if (!finished_ && text_.empty()) return {};
  return {choice(std::exchange(text_, {}), finished_)};
}

json::Value TextReply::take_logprobs() {
  if (plan_.logprobs < 0) return {};
  const auto take = [](json::Value& list) { return std::exchange(list, json::Value::array()); };
  return json::Object{{"tokens", take(tokens_)},
                      {"token_logprobs", take(token_logprobs_)},
                      {"top_logprobs", take(top_logprobs_)},
                      {"text_offset", take(text_offset_)}};
}

json::Value TextReply::choice(std::string text, bool last) {
  json::Value out = json::Object{
      {"index", index_}, {"text", std::move(text)}, {"logprobs", take_logprobs()}, {"finish_reason", nullptr}};
  if (last) {
    out.set("finish_reason", finish_);
    out.set("stop_reason", stop_reason_);
  }
  if (plan_.common.return_token_ids) out.set("token_ids", std::exchange(ids_, json::Value::array()));
  return out;
}

json::Value TextReply::whole() { return choice(std::exchange(text_, {}), true); }

}  // namespace dsf::serve
