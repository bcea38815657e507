#include "tools/bench/events.h"

#include <algorithm>
#include <array>
#include <optional>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "tools/bench/sse.h"

namespace dsf::bench {
namespace {

using json::Value;

constexpr size_t kServerExtBytes = 8 << 10;
constexpr size_t kErrorBodyBytes = 4 << 10;

std::string_view string_member(const Value* object, std::string_view key) {
  const Value* v = object == nullptr ? nullptr : object->find(key);
  return v != nullptr && v->is_string() ? std::string_view(v->as_string()) : std::string_view();
}

std::optional<int64_t> int_member(const Value* object, std::string_view key) {
  const Value* v = object == nullptr ? nullptr : object->find(key);
  return v == nullptr ? std::nullopt : v->to_i64();
}

const Value* non_null(const Value* object, std::string_view key) {
  const Value* v = object == nullptr ? nullptr : object->find(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Usage read_usage(const Value& u) {
  return {int_member(&u, "prompt_tokens"), int_member(&u, "completion_tokens"), int_member(&u, "total_tokens"),
          int_member(non_null(&u, "prompt_tokens_details"), "cached_tokens"),
          int_member(non_null(&u, "completion_tokens_details"), "reasoning_tokens")};
}

std::string words_of_error(const Value& error) {
  if (error.is_string()) return clean_utf8(error.as_string());
  const std::string_view message = string_member(&error, "message");
  return message.empty() ? json::dump(error) : clean_utf8(message);
}

// Walks the events of one stream.
class Assembler {
 public:
  Assembler(const Capture& capture, Request& r) : capture_(capture), r_(r) {}

  StreamText run() {
    for (const auto& read : capture_.reads) r_.reads.push_back({read.t, read.bytes});
    if (is_stream()) parse_body();
    count_tokens();
    fill_token_stamps();
    hash_texts();
    decide_status();
    check_counts();
    return std::move(text_);
  }

 private:
  bool is_stream() {
    if (r_.http.status == 0) return false;
    if (r_.http.status < 200 || r_.http.status > 299) {
      r_.http.error_body = clean_utf8(std::string_view(capture_.body).substr(0, kErrorBodyBytes));
      return false;
    }
    if (r_.http.content_type.starts_with("text/event-stream")) return true;
    protocol_error("content type is '" + r_.http.content_type + "', not text/event-stream: the server ignored \"stream\"");
    return false;
  }

  void parse_body() {
    SseParser parser([this](SseEvent&& e) { on_event(std::move(e)); });
    const std::string_view body(capture_.body);
    size_t at = 0;
    for (size_t i = 0; i < capture_.reads.size(); ++i) {
      const size_t end = capture_.reads[i].body_end;
      parser.feed(body.substr(at, end - at), static_cast<int64_t>(i));
      at = end;
    }
    if (parser.too_large()) protocol_error("an event is larger than 4 MiB");
    if (capture_.reads.empty()) return;
    auto rest = parser.finish(static_cast<int64_t>(capture_.reads.size()) - 1);
    if (!rest) return;
    if (rest->data == "[DONE]" || json::parse(rest->data, "event", {.reject_duplicate_keys = false})) on_event(std::move(*rest));
    else cut_event_ = true;
  }

  void on_event(SseEvent&& e) {
    const int64_t t = r_.reads[static_cast<size_t>(e.read)].t;
    if (e.kind == SseEvent::Kind::kComment) {
      push(t, e.read, EventKind::kComment, 0);
      return;
    }
    if (done_) {
      protocol_error("data after [DONE]");
      push(t, e.read, EventKind::kOther, 0);
      return;
    }
    if (e.data == "[DONE]") {
      done_ = true;
      r_.t.done = t;
      push(t, e.read, EventKind::kDone, 0);
      return;
    }
    auto payload = json::parse(e.data, "event", {.reject_duplicate_keys = false});
    if (!payload || !payload->is_object()) {
      protocol_error(payload ? "an event's data is not a JSON object" : "an event's data is not JSON: " + payload.error().what);
      push(t, e.read, EventKind::kOther, 0);
      return;
    }
    if (!r_.t.first_event) r_.t.first_event = t;
    on_payload(*payload, e.name, t, e.read);
  }

  void on_payload(const Value& payload, const std::string& name, int64_t t, int64_t read) {
    const Value* error = non_null(&payload, "error");
    if (error != nullptr || name == "error") {
      stream_error_ = words_of_error(error != nullptr ? *error : payload);
      push(t, read, EventKind::kError, 0);
      return;
    }
    keep_extensions(payload);
    std::optional<int64_t> cumulative;
    const Value* usage = non_null(&payload, "usage");
    if (usage != nullptr && usage->is_object()) {
      r_.usage_raw = *usage;
      r_.usage = read_usage(*usage);
      r_.t.usage_event = t;
      cumulative = r_.usage.completion;
    }
    const Value* choice = only_choice(payload);
    EventKind kind = usage != nullptr ? EventKind::kUsage : EventKind::kOther;
    int64_t chars = 0;
    if (choice != nullptr) {
      const bool finish = non_null(choice, "finish_reason") != nullptr;
      if (finish) {
        r_.t.finish_event = t;
        r_.output.finish_reason = clean_utf8(string_member(choice, "finish_reason"));
      }
      const auto token_kind = on_choice(*choice, chars);
      if (token_kind) kind = *token_kind;
      else if (finish) kind = EventKind::kFinish;
      else if (!string_member(choice->find("delta"), "role").empty()) kind = EventKind::kRole;
    }
    push(t, read, kind, chars);
    if (is_token(kind)) token_marks_.push_back({r_.events.size() - 1, ids_in_event_, cumulative});
  }

  const Value* only_choice(const Value& payload) {
    const Value* choices = payload.find("choices");
    if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return nullptr;
    const Value& first = choices->as_array().front();
    if (choices->as_array().size() > 1 || int_member(&first, "index").value_or(0) != 0) {
      protocol_error("more than one choice in the stream");
      return nullptr;
    }
    return &first;
  }

  // The kind of token event that the choice makes, if any; adds its text.
  std::optional<EventKind> on_choice(const Value& choice, int64_t& chars) {
    const Value* delta = non_null(&choice, "delta");
    std::string reasoning(string_member(delta, "reasoning_content"));
    const std::string_view other = string_member(delta, "reasoning");
    if (other != reasoning) reasoning += other;  // servers that send both send the same text
    const std::string content(delta != nullptr ? string_member(delta, "content") : string_member(&choice, "text"));
    const std::string tools = tool_text(delta);
    ids_in_event_ = token_ids(choice, delta);
    text_.reasoning += reasoning;
    text_.content += content;
    text_.tools += tools;
    text_.all += reasoning + content + tools;
    chars = count_code_points(reasoning) + count_code_points(content) + count_code_points(tools);
    if (!reasoning.empty()) ++r_.output.reasoning_events;
    if (!content.empty()) ++r_.output.content_events;
    if (!tools.empty()) ++r_.output.tool_events;
    if (!reasoning.empty() && !content.empty()) return EventKind::kBoth;
    if (!reasoning.empty()) return EventKind::kReasoning;
    if (!content.empty()) return EventKind::kContent;
    if (!tools.empty()) return EventKind::kTool;
    if (ids_in_event_.value_or(0) > 0) return EventKind::kTokenIds;
    return std::nullopt;
  }

  static std::string tool_text(const Value* delta) {
    std::string out;
    const Value* calls = non_null(delta, "tool_calls");
    if (calls == nullptr || !calls->is_array()) return out;
    for (const auto& call : calls->as_array()) {
      const Value* function = non_null(&call, "function");
      out += string_member(function, "name");
      out += string_member(function, "arguments");
    }
    return out;
  }

  std::optional<int64_t> token_ids(const Value& choice, const Value* delta) {
    const Value* ids = non_null(&choice, "token_ids");
    if (ids == nullptr) ids = non_null(delta, "token_ids");
    if (ids == nullptr || !ids->is_array()) return std::nullopt;
    for (const auto& id : ids->as_array()) {
      const auto v = id.to_u64();
      if (!v || *v > UINT32_MAX) return std::nullopt;
      text_.token_ids.push_back(static_cast<uint32_t>(*v));
    }
    return static_cast<int64_t>(ids->as_array().size());
  }

  void keep_extensions(const Value& payload) {
    static constexpr std::array<std::string_view, 9> kKnown = {"id",    "object",  "created",           "model",       "choices",
                                                               "usage", "system_fingerprint", "service_tier", "prompt_token_ids"};
    for (const auto& [key, value] : payload.as_object()) {
      if (value.is_null() || std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
      const Value before = r_.server_ext;
      r_.server_ext.set(key, value);
      if (json::dump(r_.server_ext).size() > kServerExtBytes) r_.server_ext = before;
    }
  }

  // Weights and the count, by the best source that every token event has (bench.md 1.3, 1.4).
  void count_tokens() {
    int64_t ids = 0;
    bool all_ids = !token_marks_.empty(), all_usage = !token_marks_.empty();
    for (const auto& mark : token_marks_) {
      all_ids = all_ids && mark.ids.has_value();
      all_usage = all_usage && mark.cumulative.has_value();
      ids += mark.ids.value_or(0);
    }
    r_.weight_source = "uniform";
    if (all_ids) {
      r_.weight_source = "token_ids";
      for (const auto& mark : token_marks_) r_.events[mark.event].tok = mark.ids;
    } else if (all_usage) {
      take_usage_deltas();
    }
    if (r_.usage.completion) {
      r_.n_tokens = r_.usage.completion;
      r_.token_count_source = "usage";
      if (all_ids && ids != *r_.n_tokens) r_.add_flag("token_ids_differ_from_usage");
    } else if (all_ids) {
      r_.n_tokens = ids;
      r_.token_count_source = "token_ids";
    } else if (!token_marks_.empty()) {
      r_.n_tokens = static_cast<int64_t>(token_marks_.size());
      r_.token_count_source = "chunks";
    }
  }

  void take_usage_deltas() {
    int64_t before = 0;
    for (const auto& mark : token_marks_) {
      if (*mark.cumulative < before) {
        r_.add_flag("usage_not_cumulative");
        return;
      }
      before = *mark.cumulative;
    }
    // A server that repeats the final count on its last events only has no per-event counts to offer.
    before = 0;
    for (const auto& mark : token_marks_) {
      r_.events[mark.event].tok = *mark.cumulative - before;
      before = *mark.cumulative;
    }
    r_.weight_source = "usage_delta";
  }

  void fill_token_stamps() {
    for (const auto& e : r_.events) {
      if (!is_token(e.kind)) continue;
      if (!r_.t.first_token) r_.t.first_token = e.t;
      if (!r_.t.first_content && e.kind != EventKind::kReasoning) r_.t.first_content = e.t;
      r_.t.last_token = e.t;
    }
    if (r_.t.first_token) {
      r_.first_token_source = "delta";
    } else if (r_.n_tokens.value_or(0) >= 1) {
      // A one-token reply whose token has no text, or one that a reasoning parser took.
      r_.t.first_token = r_.t.last_token = r_.t.finish_event ? r_.t.finish_event : r_.t.usage_event;
      r_.first_token_source = "finish";
    }
  }

  void hash_texts() {
    const auto hash = [](std::string_view s) { return s.empty() ? std::string() : codec::sha256(s).hex(); };
    r_.output.chars = count_code_points(text_.all);
    r_.output.text_sha256 = hash(text_.all);
    r_.output.reasoning_sha256 = hash(text_.reasoning);
    r_.output.content_sha256 = hash(text_.content);
    std::string ids;
    for (const uint32_t id : text_.token_ids) {
      std::array<char, 4> le{};
      store_le(le.data(), id);
      ids.append(le.data(), le.size());
    }
    r_.output.token_ids_sha256 = hash(ids);
    const size_t start = text_.content.find_first_not_of(" \n\r\t");
    r_.output.starts_with_think = start != std::string::npos && std::string_view(text_.content).substr(start).starts_with("<think>");
  }

  void decide_status() {
    r_.error = capture_.error;
    switch (capture_.ending) {
      case Ending::kConnectError: r_.status = Status::kConnectError; return;
      case Ending::kTimeoutConnect: r_.status = Status::kTimeoutConnect; return;
      case Ending::kTimeoutFirstToken: r_.status = Status::kTimeoutFirstToken; return;
      case Ending::kTimeoutIdle: r_.status = Status::kTimeoutIdle; return;
      case Ending::kTimeoutTotal: r_.status = Status::kTimeoutTotal; return;
      case Ending::kBadHttp: r_.status = Status::kProtocolError; return;
      case Ending::kAborted: r_.status = Status::kAborted; return;
      case Ending::kCut:
      case Ending::kComplete: break;
    }
    if (r_.http.status == 0) return set(Status::kTruncated, "closed before a complete answer head");
    if (r_.http.status < 200 || r_.http.status > 299) return set(Status::kHttpError, "status " + std::to_string(r_.http.status));
    if (!stream_error_.empty()) return set(Status::kStreamError, stream_error_);
    if (!protocol_error_.empty()) return set(Status::kProtocolError, protocol_error_);
    const bool finished = done_ || r_.t.finish_event.has_value();
    if ((capture_.ending == Ending::kCut && !done_) || cut_event_) return set(Status::kTruncated, "the stream ended inside the answer");
    if (!finished && !r_.t.usage_event && !r_.t.first_token) return set(Status::kEmpty, "no token, finish or usage event");
    if (!finished) return set(Status::kTruncated, "closed without a finish event or [DONE]");
    if (!r_.t.first_token && (r_.n_tokens.value_or(0) == 0)) return set(Status::kEmpty, "finished without a token");
    r_.status = Status::kOk;
  }

  void set(Status status, std::string words) {
    r_.status = status;
    if (r_.error.empty()) r_.error = std::move(words);
  }

  void check_counts() {
    if (!r_.ok() || !r_.n_tokens) return;
    const int64_t n = *r_.n_tokens;
    const auto k = static_cast<int64_t>(token_marks_.size());
    if (r_.token_count_source != "usage") r_.add_flag("usage_missing");
    const Usage& u = r_.usage;
    const bool wrong_total = u.total && u.prompt && u.completion && *u.total != *u.prompt + *u.completion;
    // Every visible event holds at least one token, unless the server itself says which of them hold none.
    const bool too_few = n < k && r_.weight_source == "uniform";
    const bool wrong_cached = u.cached && u.prompt && (*u.cached > *u.prompt || *u.cached < 0);
    if (r_.token_count_source == "usage" && (n > r_.max_tokens || too_few || u.prompt.value_or(1) < 1 || wrong_total || wrong_cached)) {
      r_.add_flag("count_mismatch");
    }
    if (r_.has_flag("token_ids_differ_from_usage")) r_.add_flag("count_mismatch");
    if (!u.prompt) r_.add_flag("prompt_count_missing");
    if (r_.output.finish_reason == "length" && n != r_.max_tokens) r_.add_flag("length_mismatch");
    else if (r_.output.finish_reason != "length" && n < r_.max_tokens) r_.add_flag("short_output");
    if (k >= 2 && r_.t.first_token == r_.t.last_token) r_.add_flag("single_read");
    if (capture_.http.closed_by_server) r_.add_flag("server_closed");
  }

  void push(int64_t t, int64_t read, EventKind kind, int64_t chars) { r_.events.push_back({t, read, kind, chars, std::nullopt}); }
  void protocol_error(std::string words) {
    if (protocol_error_.empty()) protocol_error_ = std::move(words);
  }

  struct TokenMark {
    size_t event;
    std::optional<int64_t> ids, cumulative;
  };

  const Capture& capture_;
  Request& r_;
  StreamText text_;
  std::vector<TokenMark> token_marks_;
  std::optional<int64_t> ids_in_event_;
  std::string protocol_error_, stream_error_;
  bool done_ = false, cut_event_ = false;
};

}  // namespace

StreamText assemble(const Capture& capture, Request& r) {
  r.t = capture.t;
  r.http = capture.http;
  r.loop_lag_max_ns = capture.loop_lag_max_ns;
  return Assembler(capture, r).run();
}

bool is_token_payload(std::string_view data) {
  Capture capture;
  capture.http.status = 200;
  capture.http.content_type = "text/event-stream";
  capture.body = "data: " + std::string(data) + "\n\n";
  capture.reads.push_back({0, 0, capture.body.size()});
  Request r;
  assemble(capture, r);
  return r.first_token_source == "delta";
}

void apply_tokenized_count(Request& r, int64_t n_tokens) {
  r.n_tokens = n_tokens;
  r.token_count_source = "tokenize";
}

}  // namespace dsf::bench
