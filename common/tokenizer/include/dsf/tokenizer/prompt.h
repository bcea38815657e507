#pragma once
// Chat messages to the model's prompt: control markers as explicit ids, everything else as text that can never become a control token.
//
// render_prompt() is pure and needs no tokenizer: messages become a list of segments. encode_prompt() turns segments into ids; adjacent text
// is tokenized as one string, because pieces cross the border between template and user text (serving.md 1.5). Plain values, any thread.
// Errors are kUsage with the request path ("messages[3].content") as subject: a server answers 400 with it. Source: serving.md 2.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"
#include "dsf/tokenizer/tokenizer.h"
#include "dsf/tokenizer/tools.h"

namespace dsf::tokenizer {

// The markers a prompt is built from. kTask* are internal classification tasks (serving.md 2.2).
enum class Control {
  kText,  // no marker: plain text
  kBos,
  kEos,
  kSystem,
  kUser,
  kAssistant,
  kThinkOpen,
  kThinkClose,
  kDsml,
  kReminder,
  kImage,
  kTaskAction,
  kTaskQuery,
  kTaskAuthority,
  kTaskDomain,
  kTaskTitle,
  kTaskReadUrl,
};
inline constexpr int kControlCount = 17;
// The marker's spelling, for example "<｜User｜>"; empty for kText.
std::string_view control_text(Control control);

// Ids of the markers in one tokenizer. bos .. dsml are required; reminder, image and task tokens may be absent (-1).
class ControlIds {
 public:
  // Errors: kContent, naming every required marker that the tokenizer lacks.
  static Result<ControlIds> find(const Tokenizer& tokenizer);
  TokenId operator[](Control control) const { return ids_[static_cast<size_t>(control)]; }

 private:
  TokenId ids_[kControlCount] = {};
};

struct Segment {
  Control control = Control::kText;
  std::string text;  // of kText; never empty there
  bool operator==(const Segment&) const = default;
};

// Names for reasoning effort and their numbers. A table because checkpoint revisions differ (serving.md 2.5).
struct EffortTable {
  std::vector<std::pair<std::string, int>> names;  // 0 switches thinking off
  int fallback = 75;

  static EffortTable release();  // none/minimal off, low 50, medium/high/xhigh 75, max 100
  // {"low": 50, ..., "default": 75}, values 0..100. Errors: kUsage.
  static Result<EffortTable> parse(const json::Value& object, std::string_view subject);
};

struct Thinking {
  bool on = true;
  int effort = 75;  // 1..100; meaningless when off
  bool operator==(const Thinking&) const = default;
};

// A name of the table or an integer 1..100. Errors: kUsage, subject "reasoning_effort".
Result<Thinking> parse_effort(const json::Value& effort, const EffortTable& table);
// What a chat request asks for: reasoning_effort, chat_template_kwargs.{thinking,enable_thinking,reasoning_effort}, thinking.type.
// The top-level effort wins over the one in kwargs; "none" wins over every switch. Errors: kUsage.
Result<Thinking> thinking_of_request(const json::Value& request, const Thinking& server_default, const EffortTable& table);

// How a "developer" message is rendered: as a system turn, or as a user turn (what vLLM does; prompt-hash parity needs it).
enum class DeveloperRole { kSystem, kUser };

struct PromptOptions {
  Thinking thinking;
  bool drop_thinking = true;            // drop reasoning of earlier turns unless tools are declared
  bool add_generation_prompt = true;    // open the assistant's turn at the end
  bool continue_final_message = false;  // the last message is an assistant's and stays open; also when it says prefix: true or wo_eos: true
  bool reference_ending = false;        // as the reference encoder: open no turn after a lone system message or a finished assistant turn
  DeveloperRole developer = DeveloperRole::kSystem;
};

struct PromptRequest {
  const json::Value* messages = nullptr;        // array, as in the request; required
  const json::Value* tools = nullptr;           // array of declarations, or nullptr/null for none (also for tool_choice none)
  const json::Value* response_schema = nullptr; // JSON schema for the prompt's response-format block, or nullptr
};

struct RenderedPrompt {
  std::vector<Segment> segments;
  // The image parts as received (the whole part object), in prompt order: one per kImage segment.
  std::vector<json::Value> images;
  // Where the model goes on, for the output parser's start state.
  bool open_reasoning = false;    // the prompt ends inside <think>
  bool continues_text = false;    // the last message is continued: leading newlines belong to it

  std::string text() const;  // markers spelled out
};

Result<RenderedPrompt> render_prompt(const PromptRequest& request, const PromptOptions& options);

// Text segments get Specials::kOff unless parse_special (parity with engines that tokenize the rendered string).
std::vector<TokenId> encode_segments(std::span<const Segment> segments, const Tokenizer& tokenizer, const ControlIds& ids,
                                     bool parse_special = false);

// What a server appends after thinking to force a call: the block opening, and with a name the call's opening too (serving.md 4.5).
std::vector<Segment> forced_call_prefix(std::optional<std::string_view> name);

// One assistant tool call block as history renders it, without surrounding turn: "\n\n<｜DSML｜ calls>..." (serving.md 2.2). calls: array of
// tool calls as in a message. path names it in errors.
Result<std::vector<Segment>> render_calls(const json::Value& calls, std::string_view path);

}  // namespace dsf::tokenizer
