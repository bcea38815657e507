// The streaming state machine of serving.md 3.2.
//
// push() appends to a buffer and runs steps until one needs more text. A step either consumes something or waits for a tag that is partly
// there; tags have a bounded length, so every push looks at a bounded amount of text twice. Runs of newlines that a following tag may
// swallow are kept as a number.
#include "dsf/tokenizer/output_parser.h"

#include <algorithm>
#include <utility>

#include "arguments_writer.h"
#include "dsf/base/check.h"
#include "dsml_tags.h"
#include "stop_matcher.h"

namespace dsf::tokenizer {
namespace {

enum class State {
  kReasoning,
  kContent,
  kTools,      // in a calls block, between calls
  kToolName,   // after name="
  kToolHead,   // after the name, before the tag's >
  kToolArgs,   // in a call, between parameters
  kParamName,  // after name="
  kParamHead,  // after the key, before the tag's >
  kParamValue,
  kDone,
};

constexpr unsigned kEndsValue = kParamOpenTag | kInvokeCloseTag | kBlockCloseTag;  // a value whose close is missing ends here

}  // namespace

class OutputParser::Impl {
 public:
  explicit Impl(ParserOptions options) : options_(std::move(options)), stops_(options_.stop, options_.include_stop) {
    if (!options_.new_call_id) options_.new_call_id = &new_call_id;
    switch (options_.start) {
      case ParserStart::kContent:
        content_started_ = options_.continues_text;
        break;
      case ParserStart::kReasoning:
        state_ = State::kReasoning;
        reasoning_started_ = options_.continues_text;
        break;
      case ParserStart::kCalls:
      case ParserStart::kNamedCall: open_block({}); break;
    }
  }

  std::vector<Event> push(std::string_view text, int n_tokens) {
    DSF_CHECK(!finished_, "text pushed into a finished output parser");
    if (state_ == State::kReasoning) result_.reasoning_tokens += n_tokens;
    start_named_call();
    if (!stopped()) {
      buffer_ += text;
      while (pos_ < buffer_.size() && !stopped() && step()) {
      }
      buffer_.erase(0, pos_);
      pos_ = 0;
    }
    return take_events();
  }

  std::vector<Event> finish(EndCause cause) {
    DSF_CHECK(!finished_, "output parser finished twice");
    start_named_call();
    if (!stopped()) resolve(cause);
    finished_ = true;
    result_.stop_string = stops_.matched();
    result_.unclosed_thinking = state_ == State::kReasoning && cause == EndCause::kEos;
    if (!options_.parse_calls) {
      result_.markup_in_content = (result_.content + result_.reasoning).find("<｜DSML｜") != std::string::npos;
    }
    if (cause == EndCause::kLength && !stopped()) {
      result_.finish = FinishReason::kLength;
    } else {
      result_.finish = result_.has_complete_call() ? FinishReason::kToolCalls : FinishReason::kStop;
    }
    return take_events();
  }

  bool stopped() const { return stops_.matched().has_value(); }
  bool done() const { return state_ == State::kDone; }
  bool in_reasoning() const { return state_ == State::kReasoning; }
  const ParsedOutput& result() const { return result_; }

 private:
  // ---- the buffer

  std::string_view rest() const { return std::string_view(buffer_).substr(pos_); }
  // Consumes n bytes, into the raw text of the block or call that is open.
  std::string_view take(size_t n) {
    const std::string_view piece = rest().substr(0, n);
    if (in_block_ && !named_) block_raw_ += piece;
    if (in_call_) call_raw_ += piece;
    pos_ += n;
    return piece;
  }
  // Consumes up to the next of these characters, or everything.
  std::string_view take_until(std::string_view stops) { return take(std::min(rest().find_first_of(stops), rest().size())); }

  // False: more text is needed.
  bool step() {
    switch (state_) {
      case State::kReasoning:
      case State::kContent: return text_step();
      case State::kTools: return tools_step();
      case State::kToolName: return name_step();
      case State::kToolHead: return head_step(State::kToolArgs);
      case State::kToolArgs: return args_step();
      case State::kParamName: return param_name_step();
      case State::kParamHead: return param_head_step();
      case State::kParamValue: return value_step();
      case State::kDone:
        result_.text_after_calls = result_.text_after_calls || rest().find_first_not_of(" \t\r\n") != std::string_view::npos;
        take(rest().size());
        return true;
    }
    return false;
  }

  // ---- reasoning and content

  bool started() const {
    return state_ == State::kReasoning ? reasoning_started_ : content_started_ || options_.literal_content;
  }
  unsigned live_tags() const {
    unsigned live = 0;
    if (state_ == State::kReasoning) live |= kThinkOpenTag | kThinkCloseTag;
    if (!options_.literal_content) live |= kThinkCloseTag;
    if (options_.parse_calls) live |= kBlockOpenTag;
    return live;
  }

  bool text_step() {
    const char c = rest()[0];
    // Leading newlines go; later ones wait when a tag that swallows them may follow.
    const bool newline_matters = !started() || state_ == State::kReasoning || options_.parse_calls;
    if (c == '\n' && newline_matters) {
      take(1);
      if (started()) ++newlines_;
      return true;
    }
    if (c != '<') {
      emit_text(take_until(newline_matters ? "<\n" : "<"));
      return true;
    }
    const TagMatch m = match_tag(rest(), live_tags());
    if (m.partial) return false;
    if (m.tag == kNoTag) {
      emit_text(take(1));
    } else if (m.tag == kBlockOpenTag) {
      std::string raw(std::exchange(newlines_, 0), '\n');
      flush_content();
      raw += take(m.size);
      open_block(std::move(raw));
    } else {
      take(m.size);
      // A doubled <think> or an extra </think> is as if it were not there.
      if (state_ == State::kReasoning && m.tag == kThinkCloseTag) {
        newlines_ = 0;
        state_ = State::kContent;
      }
    }
    return true;
  }

  void emit_text(std::string_view text) {
    if (newlines_ > 0) emit_plain(std::string(std::exchange(newlines_, 0), '\n'));
    emit_plain(text);
  }
  void emit_plain(std::string_view text) {
    if (text.empty()) return;
    if (state_ == State::kReasoning) {
      reasoning_started_ = true;
      result_.reasoning += text;
      add_event(EventKind::kReasoning, -1, text);
    } else {
      emit_content(text);
    }
  }
  void emit_content(std::string_view text) {
    content_started_ = true;
    std::string shown;
    stops_.push(text, shown);
    show_content(shown);
  }
  void flush_content() {
    std::string shown;
    stops_.flush(shown);
    show_content(shown);
  }
  void show_content(const std::string& shown) {
    result_.content += shown;
    add_event(EventKind::kContent, -1, shown);
  }

  // ---- the calls block

  void open_block(std::string raw) {
    state_ = State::kTools;
    in_block_ = true;
    named_ = false;
    block_raw_ = std::move(raw);
  }

  // The block named no call: it is content after all.
  void give_block_back() {
    in_block_ = false;
    in_call_ = false;
    state_ = State::kContent;
    ++result_.tool_parse_failures;
    std::string raw = std::exchange(block_raw_, {});
    if (!content_started_) raw.erase(0, std::min(raw.find_first_not_of('\n'), raw.size()));
    if (!raw.empty()) emit_content(raw);
  }

  bool tools_step() {
    take_until("<");
    if (rest().empty()) return true;
    const TagMatch m = match_tag(rest(), kInvokeOpenTag | kBlockCloseTag);
    if (m.partial) return false;
    if (m.tag == kInvokeOpenTag) {
      open_call(m.size);
    } else if (m.tag == kBlockCloseTag) {
      close_block(m.size);
    } else {
      take(1);
    }
    return true;
  }
  void open_call(size_t tag_size) {
    in_call_ = true;
    call_raw_.clear();
    name_.clear();
    take(tag_size);
    state_ = State::kToolName;
  }
  void close_block(size_t tag_size) {
    take(tag_size);
    if (named_) {
      in_block_ = false;
      state_ = State::kDone;
    } else {
      give_block_back();
    }
  }

  bool name_step() {
    name_ += take_until("\"");
    if (rest().empty()) return true;
    take(1);
    begin_call();
    state_ = State::kToolHead;
    return true;
  }

  // Consumes up to and with the tag's '>'.
  bool head_step(State next) {
    attributes_ += take_until(">");
    if (rest().empty()) return true;
    take(1);
    state_ = next;
    return true;
  }

  void begin_call() {
    named_ = true;
    block_raw_.clear();
    attributes_.clear();
    const auto tool = std::ranges::find(options_.tools, name_, &Tool::name);
    const bool declared = tool != options_.tools.end();
    const bool unwanted = !options_.only_function.empty() && name_ != options_.only_function && !declared;
    keep_call_ = !unwanted && (options_.parallel_calls || result_.calls.empty());
    writer_ = ArgumentsWriter(declared ? &*tool : nullptr);
    if (!keep_call_) {
      ++result_.dropped_calls;
      return;
    }
    result_.calls.push_back({options_.new_call_id(), name_, {}, false, {}});
    add_event(EventKind::kCallBegin, call_index(), name_);
    events_.back().id = result_.calls.back().id;
  }
  int call_index() const { return static_cast<int>(result_.calls.size()) - 1; }

  void arguments(std::string_view fragment) {
    if (!keep_call_ || fragment.empty()) return;
    result_.calls.back().arguments += fragment;
    add_event(EventKind::kCallArguments, call_index(), fragment);
  }

  void end_call() {
    arguments(writer_.close());
    in_call_ = false;
    state_ = State::kTools;
    if (!keep_call_) return;
    result_.repaired_values += writer_.repaired();
    result_.calls.back().complete = true;
    result_.calls.back().raw = std::move(call_raw_);
    add_event(EventKind::kCallEnd, call_index(), {});
  }

  bool args_step() {
    take_until("<");
    if (rest().empty()) return true;
    const TagMatch m = match_tag(rest(), kParamOpenTag | kInvokeCloseTag | kBlockCloseTag | kInvokeOpenTag);
    if (m.partial) return false;
    if (m.tag == kParamOpenTag) {
      take(m.size);
      name_.clear();
      state_ = State::kParamName;
    } else if (m.tag == kInvokeCloseTag) {
      take(m.size);
      end_call();
    } else if (m.tag == kBlockCloseTag) {
      end_call();
      close_block(m.size);
    } else if (m.tag == kInvokeOpenTag) {
      end_call();
      open_call(m.size);
    } else {
      take(1);
    }
    return true;
  }

  bool param_name_step() {
    name_ += take_until("\"");
    if (rest().empty()) return true;
    take(1);
    attributes_.clear();
    state_ = State::kParamHead;
    return true;
  }
  bool param_head_step() {
    head_step(State::kParamValue);
    if (state_ == State::kParamValue) {
      const bool is_json = attributes_.find("string=\"false\"") != std::string::npos;
      arguments(writer_.begin(std::exchange(name_, {}), !is_json));
    }
    return true;
  }

  bool value_step() {
    const char c = rest()[0];
    if (c != '<' && c != '\n') {
      arguments(writer_.piece(take_until("<\n")));
      return true;
    }
    // One newline before a tag that stands in for the missing close belongs to the tags; before a proper close it is value.
    const size_t skip = c == '\n' ? 1 : 0;
    if (rest().size() == skip) return false;
    TagMatch m;
    if (rest()[skip] == '<') m = match_tag(rest().substr(skip), skip == 0 ? kEndsValue | kParamCloseTag : kEndsValue);
    if (m.partial) return false;
    if (m.tag == kNoTag) {
      arguments(writer_.piece(take(1)));
      return true;
    }
    take(m.tag == kParamCloseTag ? m.size : skip);
    arguments(writer_.end());
    state_ = State::kToolArgs;
    return true;
  }

  // ---- start and end

  // The server wrote the call's opening into the prompt, so the model begins after it.
  void start_named_call() {
    if (options_.start != ParserStart::kNamedCall || named_) return;
    name_ = options_.forced_name;
    in_call_ = true;
    call_raw_ = "<｜DSML｜ invoke name=\"" + name_ + "\">\n";
    begin_call();
    state_ = State::kToolArgs;
  }

  // End of generation: what was held back is text of the current state.
  void resolve(EndCause cause) {
    const bool at_eos = cause != EndCause::kLength;
    switch (state_) {
      case State::kReasoning:
      case State::kContent:
        emit_text(take(rest().size()));
        flush_content();
        return;
      case State::kTools:
      case State::kToolName:
        take(rest().size());
        if (!at_eos || named_) return;
        give_block_back();
        flush_content();
        return;
      case State::kToolHead:
      case State::kToolArgs:
        take(rest().size());
        if (at_eos) end_call();
        return;
      case State::kParamValue: arguments(writer_.piece(take(rest().size()))); return;
      case State::kParamName:
      case State::kParamHead:
      case State::kDone: return;
    }
  }

  void add_event(EventKind kind, int call, std::string_view text) {
    const bool joins = kind == EventKind::kReasoning || kind == EventKind::kContent || kind == EventKind::kCallArguments;
    if (joins && text.empty()) return;
    if (joins && !events_.empty() && events_.back().kind == kind && events_.back().call == call) {
      events_.back().text += text;
    } else {
      events_.push_back({kind, call, std::string(text), {}});
    }
  }
  std::vector<Event> take_events() { return std::exchange(events_, {}); }

  ParserOptions options_;
  StopMatcher stops_;
  State state_ = State::kContent;
  ParsedOutput result_;
  std::vector<Event> events_;
  bool finished_ = false;

  std::string buffer_;
  size_t pos_ = 0;
  size_t newlines_ = 0;  // held back
  bool reasoning_started_ = false, content_started_ = false;

  bool in_block_ = false, in_call_ = false;
  bool named_ = false;      // the block has named a call
  bool keep_call_ = false;  // the open call is one the client gets
  std::string block_raw_, call_raw_;
  std::string name_, attributes_;
  ArgumentsWriter writer_;
};

bool ParsedOutput::has_complete_call() const { return std::ranges::any_of(calls, &ParsedCall::complete); }

OutputParser::OutputParser(ParserOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

std::vector<Event> OutputParser::push(std::string_view text, int n_tokens) { return impl_->push(text, n_tokens); }
std::vector<Event> OutputParser::finish(EndCause cause) { return impl_->finish(cause); }
bool OutputParser::stopped() const { return impl_->stopped(); }
bool OutputParser::done() const { return impl_->done(); }
bool OutputParser::in_reasoning() const { return impl_->in_reasoning(); }
const ParsedOutput& OutputParser::result() const { return impl_->result(); }

std::string_view finish_reason_text(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
  }
  return "stop";
}

}  // namespace dsf::tokenizer
