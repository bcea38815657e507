#include "dsf/base/check.h"
#include "tools/serve/api/chat.h"
#include "tools/serve/api/choice_filter.h"

namespace dsf::serve {
namespace {

ApiResult<void> refuse_unsupported(const Fields& fields) {
  if (fields.find("chat_template") != nullptr)
    return refuse("a custom chat_template is not supported", "chat_template");
  if (fields.find("prompt_logprobs") != nullptr)
    return refuse("prompt_logprobs is only supported by /v1/completions with echo", "prompt_logprobs");
  DSF_API_TRY(const bool echo, fields.boolean_or("echo", false));
  if (echo) return refuse("echo is not supported for chat", "echo");
  return {};
}

ApiResult<void> parse_logprobs(const Fields& fields, ChatPlan& plan) {
  DSF_API_TRY(plan.logprobs, fields.boolean_or("logprobs", false));
  DSF_API_TRY(const int64_t top, fields.integer_or("top_logprobs", 0, 0, kMaxTopLogprobs));
  if (top > 0 && !plan.logprobs) return refuse("top_logprobs is only allowed when logprobs is true", "top_logprobs");
  if (plan.logprobs) plan.common.sampling.top_logprobs = static_cast<int>(top);
  return {};
}

ApiResult<tokenizer::PromptOptions> parse_prompt_options(const Context& context, const json::Value& body) {
  const Fields fields(body);
  tokenizer::PromptOptions out;
  DSF_API_FROM(out.thinking, tokenizer::thinking_of_request(body, context.options.thinking, context.options.effort));
  out.developer = context.options.developer;
  DSF_API_TRY(const json::Value* kwargs, fields.object("chat_template_kwargs"));
  if (kwargs != nullptr) {
    DSF_API_TRY(out.drop_thinking, Fields(*kwargs, "chat_template_kwargs.").boolean_or("drop_thinking", true));
  }
  DSF_API_TRY(out.continue_final_message, fields.boolean_or("continue_final_message", false));
  DSF_API_TRY(out.add_generation_prompt, fields.boolean_or("add_generation_prompt", !out.continue_final_message));
  if (out.continue_final_message && out.add_generation_prompt) {
    return refuse("continue_final_message and add_generation_prompt cannot both be true", "continue_final_message");
  }
  return out;
}

bool is_forced(tokenizer::ToolMode mode) {
  return mode == tokenizer::ToolMode::kNamed || mode == tokenizer::ToolMode::kRequired;
}

// The text of a message that is continued.
std::string content_of(const json::Value& message) {
  const json::Value* content = message.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) return content->as_string();
  std::string out;
  if (!content->is_array()) return out;
  for (const json::Value& part : content->as_array()) {
    const json::Value* text = part.find("text");
    if (text == nullptr || !text->is_string()) continue;
    out += (out.empty() ? "" : "\n\n") + text->as_string();
  }
  return out;
}

std::string spelled(std::span<const tokenizer::Segment> segments) {
  std::string out;
  for (const auto& segment : segments)
    out += segment.control == tokenizer::Control::kText ? segment.text : std::string(control_text(segment.control));
  return out;
}

// A call that the client demands: forced openings, then the names that were declared.
void force_call(const Context& context, const ChatPlan& plan, bool named, Steering& out) {
  const auto prefix =
      tokenizer::forced_call_prefix(named ? std::optional<std::string_view>(plan.tool_choice.name) : std::nullopt);
  out.forced = tokenizer::encode_segments(prefix, context.tokenizer, context.ids);
  if (named) return;
  // Any declared call may follow: the texts that open one are what forced_call_prefix() adds for a name.
  const std::string block = spelled(prefix);
  std::vector<std::string> openings;
  for (const tokenizer::Tool& tool : plan.parser.tools) {
    const std::string text = spelled(tokenizer::forced_call_prefix(tool.name));
    DSF_CHECK(text.starts_with(block), "the opening of a call follows the opening of its block");
    openings.push_back(text.substr(block.size()));
  }
  out.filter = std::make_unique<ChoiceFilter>(context.tokenizer, context.vocab_size(), std::move(openings));
}

// What limits the model's tokens after its thinking (serving.md 4.5, 4.6).
ApiResult<Steering> steering_of(const Context& context, const ChatPlan& plan) {
  Steering out;
  const tokenizer::ToolMode mode = plan.tool_choice.mode;
  const bool named = mode == tokenizer::ToolMode::kNamed, forced = is_forced(mode);
  if (!forced && plan.format.grammar == nullptr) return out;
  out.active = true;
  out.trigger = plan.prompt.open_reasoning ? context.ids[tokenizer::Control::kThinkClose] : -1;
  if (forced) {
    force_call(context, plan, named, out);
    return out;
  }
  std::string opening;  // with tools the model may call instead of answering
  if (mode == tokenizer::ToolMode::kAuto && plan.format.json)
    opening = spelled(tokenizer::forced_call_prefix(std::nullopt));
  DSF_API_TRY(auto filter, format_filter(context, plan.format, plan.continued, opening));
  out.filter = std::move(filter);
  return out;
}

}  // namespace

ApiResult<ChatPlan> plan_chat(const Context& context, const json::Value& body, bool for_tokenize) {
  const Fields fields(body);
  ChatPlan plan;
  if (!for_tokenize) {
    DSF_API_TRY(plan.common, parse_common(body, context.options.defaults, context.vocab_size(),
                                          {"max_completion_tokens", "max_tokens"}));
    if (!context.options.deterministic_seed) plan.common.salt = random_u64();
    DSF_API_OK(check_model(context, plan.common.model));
    DSF_API_OK(refuse_unsupported(fields));
    DSF_API_OK(parse_logprobs(fields, plan));
    DSF_API_TRY(plan.include_reasoning, fields.boolean_or("include_reasoning", true));
    DSF_API_TRY(plan.parser.parallel_calls, fields.boolean_or("parallel_tool_calls", true));
  }
  const json::Value* messages = body.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) {
    return refuse("messages must be a non-empty list", "messages");
  }
  const json::Value none;
  const json::Value* tools = fields.find("tools");
  const json::Value* choice = for_tokenize ? nullptr : fields.find("tool_choice");
  DSF_API_FROM(plan.parser.tools, tokenizer::parse_tools(tools == nullptr ? none : *tools));
  DSF_API_FROM(plan.tool_choice, tokenizer::parse_tool_choice(choice == nullptr ? none : *choice, plan.parser.tools));
  const bool declare = plan.tool_choice.mode != tokenizer::ToolMode::kNone;
  DSF_API_TRY(const tokenizer::PromptOptions options, parse_prompt_options(context, body));
  DSF_API_TRY(plan.format, parse_reply_format(fields));
  if (plan.format.grammar != nullptr && is_forced(plan.tool_choice.mode))
    return refuse("a reply format cannot be combined with a tool_choice that demands a call", "tool_choice");
  const tokenizer::PromptRequest request{messages, declare ? tools : nullptr, plan.format.prompt_schema};
  DSF_API_FROM(plan.prompt, tokenizer::render_prompt(request, options));
  if (!plan.prompt.images.empty())
    return refuse("this server takes text only; image parts are not supported", "messages");
  plan.ids =
      tokenizer::encode_segments(plan.prompt.segments, context.tokenizer, context.ids, context.options.parse_special);
  plan.parser.start =
      plan.prompt.open_reasoning ? tokenizer::ParserStart::kReasoning : tokenizer::ParserStart::kContent;
  plan.parser.continues_text = plan.prompt.continues_text;
  plan.parser.parse_calls = declare;
  plan.parser.literal_content = plan.format.grammar != nullptr;
  if (plan.prompt.continues_text && !plan.prompt.open_reasoning)
    plan.continued = content_of(messages->as_array().back());
  if (plan.tool_choice.mode == tokenizer::ToolMode::kNamed) plan.parser.only_function = plan.tool_choice.name;
  plan.parser.stop = plan.common.stop;
  plan.parser.include_stop = plan.common.include_stop;
  return plan;
}

ApiResult<GenerationRequest> chat_request(const Context& context, const ChatPlan& plan, int64_t choice) {
  DSF_API_TRY(GenerationRequest request,
              make_request(context, plan.common, plan.ids, "messages", static_cast<uint64_t>(choice)));
  DSF_API_TRY(request.steering, steering_of(context, plan));
  return request;
}

}  // namespace dsf::serve
