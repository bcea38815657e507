#pragma once
// The model's text to reasoning, content and tool calls, incrementally.
//
// One OutputParser per reply, one thread at a time. Feed it decoded text (a StreamDecoder's output, without EOS) token by token; it returns
// events as soon as their text can no longer change. However the text is cut, the concatenation of the events is the same and equals
// result(). It works on text alone: the special tokens decode to their spelling, and BPE may split the characters around them differently.
// Hostile text only costs time linear in its length. Source: serving.md 3 and the stop strings of 4.4.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/tokenizer/tools.h"

namespace dsf::tokenizer {

enum class ParserStart {
  kContent,    // the prompt ended in </think>
  kReasoning,  // the prompt ended inside an open <think>
  kCalls,      // the server forced the opening of the calls block
  kNamedCall,  // the server forced block and call opening; ParserOptions::forced_name is the call's name
};

struct ParserOptions {
  ParserStart start = ParserStart::kContent;
  bool continues_text = false;     // RenderedPrompt::continues_text: keep leading newlines
  std::string forced_name = {};    // of kNamedCall
  std::vector<Tool> tools = {};    // declared tools, for typing; may be empty
  bool parse_calls = true;         // false for tool_choice none: markup stays content and is counted
  bool parallel_calls = true;      // false: keep the first call only
  std::string only_function = {};  // tool_choice named this function: calls of undeclared tools are dropped
  bool literal_content = false;    // the reply has a format of its own: "</think>" in content is text like any other
  std::vector<std::string> stop = {};  // stop strings, matched in content only; empty ones are ignored
  bool include_stop = false;       // keep the matched stop string in the content
  std::function<std::string()> new_call_id = {};  // unset: new_call_id() below
};

// "call_" and 24 hex digits from the system's random source.
std::string new_call_id();

enum class EventKind {
  kReasoning,      // text: a piece of reasoning
  kContent,        // text: a piece of content
  kCallBegin,      // text: the function's name; id: the call's id. Sent once the name is complete
  kCallArguments,  // text: a piece of the arguments JSON string
  kCallEnd,        // the call is complete: its arguments are whole JSON
};
struct Event {
  EventKind kind;
  int call = -1;     // index of the call, from 0, for kCall*
  std::string text;
  std::string id;    // of kCallBegin
  bool operator==(const Event&) const = default;
};

// Why generation ended.
enum class EndCause {
  kEos,     // end-of-turn token, or a stop token id
  kStop,    // the parser reported a stop string
  kLength,  // max tokens or context full
};
enum class FinishReason { kStop, kLength, kToolCalls };
std::string_view finish_reason_text(FinishReason reason);  // "stop", "length", "tool_calls"

struct ParsedCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text; whole when complete
  bool complete = false;
  std::string raw;        // the call's exact text, invoke tag to invoke close, for replay of the history (serving.md 7.4)
};

struct ParsedOutput {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;  // by index; a non-streaming reply leaves incomplete ones out
  FinishReason finish = FinishReason::kStop;
  std::optional<std::string> stop_string;  // the one that matched
  // Thinking mode ended at EOS without </think>: reply with content "" (not null) and say so (serving.md 3.5).
  bool unclosed_thinking = false;
  int64_t reasoning_tokens = 0;  // tokens up to and including </think>; 0 when no reasoning was open
  // Metrics.
  int tool_parse_failures = 0;   // blocks without a call, returned as content
  int dropped_calls = 0;         // by parallel_calls or only_function
  bool text_after_calls = false; // text after the closed block was dropped
  bool markup_in_content = false; // a block opening seen while parse_calls was false
  int repaired_values = 0;       // values that were not what their tag said
  bool has_complete_call() const;
};

class OutputParser {
 public:
  explicit OutputParser(ParserOptions options);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  // text: what n_tokens more tokens decoded to; may be empty. Events in order; neighbours of one kind and call are joined.
  std::vector<Event> push(std::string_view text, int n_tokens = 1);
  // End of generation: resolves what was held back. Call once, last.
  std::vector<Event> finish(EndCause cause);

  // A stop string matched: stop generating and call finish(EndCause::kStop). Text pushed after it is ignored.
  bool stopped() const;
  // The calls block is closed: whatever follows would be dropped, so generation may end.
  bool done() const;
  bool in_reasoning() const;
  // Complete after finish(); before it, what has been emitted so far.
  const ParsedOutput& result() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dsf::tokenizer
