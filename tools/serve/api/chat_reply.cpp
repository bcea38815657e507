#include <algorithm>

#include "tools/serve/api/chat.h"

namespace dsf::serve {

using tokenizer::EventKind;

ChatReply::ChatReply(const Context& context, const ChatPlan& plan, int64_t index)
    : context_(context),
      index_(index),
      streaming_(plan.common.stream.on),
      logprobs_(plan.logprobs),
      include_reasoning_(plan.include_reasoning),
      return_token_ids_(plan.common.return_token_ids),
      eos_(static_cast<int32_t>(context.loop.config().eos_token_id)),
      ignore_eos_(plan.common.ignore_eos),
      n_prompt_(static_cast<int64_t>(plan.ids.size())),
      decoder_(context.tokenizer, plan.common.skip_special_tokens),
      parser_(plan.parser) {
  if (return_token_ids_) prompt_ids_ = plan.ids;
}

json::Value ChatReply::opening() { return chunk(json::Object{{"role", "assistant"}, {"content", ""}}, nullptr); }

bool ChatReply::token(const Choice& choice) {
  ++n_tokens_;
  if (logprobs_) pending_logprobs_.push(chat_logprob(context_.tokenizer, choice));
  if (return_token_ids_) pending_ids_.push(choice.id);
  const bool silent = choice.id == eos_ && !ignore_eos_;  // EOS ends the reply; it is never text
  emit(parser_.push(silent ? std::string() : decoder_.push(choice.id), 1));
  return !parser_.stopped() && !parser_.done();
}

void ChatReply::finish(const End* end) {
  tokenizer::EndCause cause = tokenizer::EndCause::kEos;
  if (parser_.stopped()) cause = tokenizer::EndCause::kStop;
  if (end != nullptr && end->reason == EndReason::kLength) cause = tokenizer::EndCause::kLength;
  if (end != nullptr && end->reason == EndReason::kStopToken) stop_token_ = end->stop_token;
  if (cause != tokenizer::EndCause::kStop) emit(parser_.push(decoder_.finish(), 0));
  emit(parser_.finish(cause));
  finished_ = true;
}

std::vector<json::Value> ChatReply::take_chunks() {
  std::vector<json::Value> out;
  for (const tokenizer::Event& event : std::exchange(events_, {})) {
    if (json::Value delta = delta_of(event); !delta.is_null()) out.push_back(chunk(std::move(delta), nullptr));
  }
  if (finished_) out.push_back(chunk(json::Value::object(), finish_reason()));
  return out;
}

// A chunk carries what was sampled since the last one, whether or not its text shows.
json::Value ChatReply::chunk(json::Value delta, json::Value finish_reason) {
  const bool last = !finish_reason.is_null();
  json::Value logprobs;
  if (logprobs_ && !pending_logprobs_.as_array().empty()) {
    logprobs = json::Object{{"content", std::exchange(pending_logprobs_, json::Value::array())}};
  }
  json::Value out = json::Object{{"index", index_},
                                 {"delta", std::move(delta)},
                                 {"logprobs", std::move(logprobs)},
                                 {"finish_reason", std::move(finish_reason)}};
  if (return_token_ids_ && (last || !pending_ids_.as_array().empty()))
    out.set("token_ids", std::exchange(pending_ids_, json::Value::array()));
  if (last) out.set("stop_reason", stop_reason());
  if (last && parser_.result().unclosed_thinking) out.set("unclosed_thinking", true);
  return out;
}

void ChatReply::emit(const std::vector<tokenizer::Event>& events) {
  if (!streaming_) return;
  for (const tokenizer::Event& event : events) {
    const bool goes_on = !events_.empty() && events_.back().kind == event.kind && events_.back().call == event.call;
    if (goes_on && event.kind != EventKind::kCallBegin)
      events_.back().text += event.text;
    else
      events_.push_back(event);
  }
}

json::Value ChatReply::delta_of(const tokenizer::Event& event) const {
  const auto call = [&](json::Value body) { return json::Object{{"tool_calls", json::Array{std::move(body)}}}; };
  switch (event.kind) {
    case EventKind::kReasoning:
      if (!include_reasoning_) return {};
      return json::Object{{"reasoning_content", event.text}, {"reasoning", event.text}};
    case EventKind::kContent:
      return json::Object{{"content", event.text}};
    case EventKind::kCallBegin:
      return call(json::Object{{"index", event.call},
                               {"id", event.id},
                               {"type", "function"},
                               {"function", json::Object{{"name", event.text}, {"arguments", ""}}}});
    case EventKind::kCallArguments:
      return call(json::Object{{"index", event.call}, {"function", json::Object{{"arguments", event.text}}}});
    case EventKind::kCallEnd:
      return {};
  }
  return {};
}

json::Value ChatReply::message() const {
  const tokenizer::ParsedOutput& result = parser_.result();
  std::string content = result.content, reasoning = include_reasoning_ ? result.reasoning : "";
  if (result.unclosed_thinking && context_.options.rescue_unclosed_thinking) {
    content = result.reasoning;
    reasoning.clear();
  }
  json::Value calls = json::Value::array();
  for (const tokenizer::ParsedCall& call : result.calls) {
    if (!call.complete) continue;
    calls.push(json::Object{{"id", call.id},
                            {"type", "function"},
                            {"function", json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  const bool has_calls = !calls.as_array().empty();
  const bool null_content = content.empty() && !result.unclosed_thinking && (!result.reasoning.empty() || has_calls);
  const auto text_or_null = [](const std::string& text) { return text.empty() ? json::Value() : json::Value(text); };
  json::Value out = json::Object{{"role", "assistant"},
                                 {"content", null_content ? json::Value() : json::Value(content)},
                                 {"reasoning_content", text_or_null(reasoning)},
                                 {"reasoning", text_or_null(reasoning)}};
  if (has_calls) out.set("tool_calls", std::move(calls));
  return out;
}

json::Value ChatReply::whole() {
  json::Value logprobs;
  if (logprobs_) logprobs = json::Object{{"content", std::exchange(pending_logprobs_, json::Value::array())}};
  json::Value out = json::Object{{"index", index_},
                                 {"message", message()},
                                 {"logprobs", std::move(logprobs)},
                                 {"finish_reason", finish_reason()},
                                 {"stop_reason", stop_reason()}};
  if (parser_.result().unclosed_thinking) out.set("unclosed_thinking", true);
  if (return_token_ids_) {
    json::Value prompt = json::Value::array();
    for (const int32_t id : prompt_ids_) prompt.push(id);
    out.set("prompt_token_ids", std::move(prompt));
    out.set("token_ids", std::exchange(pending_ids_, json::Value::array()));
  }
  return out;
}

json::Value ChatReply::stop_reason() const {
  if (const auto& stop = parser_.result().stop_string) return *stop;
  return stop_token_ >= 0 ? json::Value(stop_token_) : json::Value();
}

Usage ChatReply::usage() const { return {n_prompt_, n_tokens_, parser_.result().reasoning_tokens, 0}; }

std::string ChatReply::finish_reason() const { return std::string(finish_reason_text(parser_.result().finish)); }

void ChatReply::describe(GenerationRecord& record) const {
  const tokenizer::ParsedOutput& result = parser_.result();
  record.unclosed_thinking = result.unclosed_thinking;
  record.markup_in_content = result.markup_in_content;
  record.text_after_calls = result.text_after_calls;
  record.tool_parse_failures = result.tool_parse_failures;
}

}  // namespace dsf::serve
