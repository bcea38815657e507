#pragma once
// POST /v1/chat/completions: the request's plan, and the reply assembled from tokens. Source: serving.md 2-4.
#include "dsf/tokenizer/output_parser.h"
#include "tools/serve/api/generation.h"

namespace dsf::serve {

// A validated chat request. Plain value; tools live inside parser options.
struct ChatPlan {
  CommonParams common;
  tokenizer::RenderedPrompt prompt;
  std::vector<int32_t> ids;
  tokenizer::ParserOptions parser;
  tokenizer::ToolChoice tool_choice;
  ReplyFormat format;
  std::string continued;  // content of the last message when it is continued
  bool logprobs = false;
  bool include_reasoning = true;
};

// Everything of a chat request but running it. Also what /tokenize does with messages (for_tokenize: sampling fields
// are not read).
ApiResult<ChatPlan> plan_chat(const Context& context, const json::Value& body, bool for_tokenize = false);
// choice: which of the plan's n choices.
ApiResult<GenerationRequest> chat_request(const Context& context, const ChatPlan& plan, int64_t choice);

// Tokens to chat choices, streamed or whole; both come from the same parser events.
class ChatReply final : public Reply {
 public:
  ChatReply(const Context& context, const ChatPlan& plan, int64_t index);

  json::Value opening() override;
  bool token(const Choice& choice) override;
  void finish(const End* end) override;
  std::vector<json::Value> take_chunks() override;
  json::Value whole() override;
  Usage usage() const override;
  std::string finish_reason() const override;
  void describe(GenerationRecord& record) const override;

 private:
  json::Value chunk(json::Value delta, json::Value finish_reason);
  void emit(const std::vector<tokenizer::Event>& events);
  json::Value delta_of(const tokenizer::Event& event) const;
  json::Value message() const;
  json::Value stop_reason() const;

  const Context& context_;
  const int64_t index_;
  const bool streaming_, logprobs_, include_reasoning_, return_token_ids_;
  const int32_t eos_;
  const bool ignore_eos_;
  const int64_t n_prompt_;
  std::vector<int32_t> prompt_ids_;  // only with return_token_ids
  tokenizer::StreamDecoder decoder_;
  tokenizer::OutputParser parser_;
  int64_t n_tokens_ = 0;
  int32_t stop_token_ = -1;
  bool finished_ = false;
  std::vector<tokenizer::Event> events_;  // not sent yet (streaming)
  json::Value pending_logprobs_ =
      json::Value::array();  // of tokens whose text has not been sent yet (streaming), or of all
  json::Value pending_ids_ = json::Value::array();
};

}  // namespace dsf::serve
