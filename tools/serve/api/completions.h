#pragma once
// POST /v1/completions: raw prompts without a chat template, and their replies. Source: serving.md 4.1, 4.4.
#include "tools/serve/api/generation.h"
#include "tools/serve/api/stop_matcher.h"

namespace dsf::serve {

struct CompletionPlan {
  CommonParams common;
  std::vector<std::vector<int32_t>> prompts;
  ReplyFormat format;
  bool echo = false;
  int logprobs = -1;  // -1: none, otherwise alternatives per token
};

ApiResult<CompletionPlan> plan_completion(const Context& context, const json::Value& body);
// Choices are numbered prompt by prompt, n of each.
size_t n_choices(const CompletionPlan& plan);
ApiResult<GenerationRequest> completion_request(const Context& context, const CompletionPlan& plan, size_t index);

class TextReply final : public Reply {
 public:
  // index: of the choice.
  TextReply(const Context& context, const CompletionPlan& plan, size_t index);

  json::Value opening() override;
  void prompt(std::vector<Choice> choices) override;
  bool token(const Choice& choice) override;
  void finish(const End* end) override;
  std::vector<json::Value> take_chunks() override;
  json::Value whole() override;
  Usage usage() const override { return {n_prompt_, n_tokens_, 0, 0}; }
  std::string finish_reason() const override { return finish_; }

 private:
  void add_logprob(const Choice& choice, bool known);
  json::Value take_logprobs();
  json::Value choice(std::string text, bool last);

  const Context& context_;
  const CompletionPlan& plan_;
  const size_t index_;
  const int64_t n_prompt_;
  const int32_t eos_;
  tokenizer::StreamDecoder decoder_;
  StopMatcher stops_;
  std::string text_;  // ready: the whole reply, or since the last chunk
  std::string finish_ = "stop";
  json::Value stop_reason_;
  int64_t n_tokens_ = 0, offset_ = 0;
  json::Value tokens_ = json::Value::array(), token_logprobs_ = json::Value::array(),
              top_logprobs_ = json::Value::array(), text_offset_ = json::Value::array(), ids_ = json::Value::array();
  bool finished_ = false;
};

}  // namespace dsf::serve
