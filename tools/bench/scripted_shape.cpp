#include <algorithm>

#include "tools/bench/scripted.h"

namespace dsf::bench {
namespace {

using json::Value;

// Turns a StreamShape into chunks, event by event.
class Writer {
 public:
  explicit Writer(const StreamShape& shape) : shape_(shape) {
    total_ = shape.stop_after > 0 ? shape.stop_after : shape.n_tokens;
    if (shape.max_tokens > 0) total_ = std::min(total_, shape.max_tokens);
  }

  Script write() {
    if (shape_.role_ms >= 0) event(shape_.role_ms, with_choice(delta("role", "assistant"), nullptr));
    if (shape_.comment_every_ms > 0) {
      for (double t = shape_.comment_every_ms; t < shape_.first_ms; t += shape_.comment_every_ms) raw(t, ": keepalive\n\n");
    }
    double t = shape_.first_ms;
    const int n_events = count_events();
    for (int k = 1; sent_ < total_; ++k) {
      const int n = std::min(k == 1 ? shape_.first_event_tokens : shape_.tokens_per_event, total_ - sent_);
      token_event(t, k, n_events, n);
      if (shape_.break_after_event == k) return finish_with({t, {}, Chunk::What::kReset, false});
      if (shape_.error_after_event == k) {
        event(t, Value(json::Object{{"error", json::Object{{"message", "scripted failure"}, {"type", "server_error"}}}}));
        return finish_with({t, {}, Chunk::What::kClose, false});
      }
      if (shape_.stall_after_event == k) t += shape_.stall_ms;
      if (sent_ < total_) t += shape_.gap_ms;
    }
    finish(t);
    if (shape_.events_per_write > 1) coalesce(static_cast<size_t>(shape_.events_per_write));
    return std::move(script_);
  }

 private:
  void coalesce(size_t n) {
    std::vector<Chunk> out;
    for (size_t i = 0; i < script_.chunks.size(); ++i) {
      if (i % n == 0) out.push_back(std::move(script_.chunks[i]));
      else out.back().bytes += script_.chunks[i].bytes;
      out.back().at_ms = script_.chunks[i].at_ms;
    }
    script_.chunks = std::move(out);
  }

  int count_events() const {
    const int after = std::max(0, total_ - shape_.first_event_tokens);
    return 1 + (after + shape_.tokens_per_event - 1) / shape_.tokens_per_event;
  }

  static Value delta(std::string_view key, Value value) { return json::Object{{std::string(key), std::move(value)}}; }

  Value with_choice(Value delta_value, Value finish_reason, int n_ids = 0) const {
    Value choice = json::Object{{"index", 0}, {"delta", std::move(delta_value)}, {"finish_reason", std::move(finish_reason)}};
    if (shape_.token_ids && n_ids > 0) {
      json::Array ids;
      for (int i = 0; i < n_ids; ++i) ids.emplace_back(1000 + i);
      choice.set("token_ids", std::move(ids));
    }
    Value out = json::Object{{"id", "chatcmpl-scripted"}, {"object", "chat.completion.chunk"}, {"created", 1700000000}, {"model", "scripted"}};
    out.set("choices", json::Array{std::move(choice)});
    return out;
  }

  Value usage(int completion) const {
    Value out = json::Object{{"prompt_tokens", shape_.prompt_tokens}, {"completion_tokens", completion},
                             {"total_tokens", shape_.prompt_tokens + completion}};
    out.set("prompt_tokens_details", json::Object{{"cached_tokens", shape_.cached_tokens}});
    return out;
  }

  void token_event(double t, int k, int n_events, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += " word";
    Value d;
    if (k <= shape_.reasoning_events) {
      d = json::Object{{"reasoning_content", text}, {"reasoning", text}};
    } else if (k > n_events - shape_.tool_events) {
      Value function = json::Object{{"arguments", text}};
      if (k == n_events - shape_.tool_events + 1) function.set("name", "lookup");
      d = delta("tool_calls", json::Array{json::Object{{"index", 0}, {"function", std::move(function)}}});
    } else {
      d = delta("content", text);
    }
    Value e = with_choice(std::move(d), nullptr, n);
    sent_ += n;
    if (shape_.continuous_usage) e.set("usage", usage(sent_));
    event(t, e);
  }

  void finish(double t) {
    const bool early = shape_.stop_after > 0 && (shape_.max_tokens == 0 || shape_.stop_after < shape_.max_tokens);
    Value e = with_choice(json::Object{}, shape_.tool_events > 0 ? "tool_calls" : early ? "stop" : "length");
    if (shape_.usage && shape_.usage_on_finish) e.set("usage", usage(sent_ + shape_.usage_error));
    event(t, e);
    if (shape_.usage && !shape_.usage_on_finish) {
      Value last = json::Object{{"id", "chatcmpl-scripted"}, {"object", "chat.completion.chunk"}, {"created", 1700000000}, {"model", "scripted"}};
      last.set("choices", json::Array{});
      last.set("usage", usage(sent_ + shape_.usage_error));
      event(t, last);
    }
    if (shape_.done) raw(t, "data: [DONE]\n\n");
  }

  Script finish_with(Chunk chunk) {
    script_.chunks.push_back(std::move(chunk));
    return std::move(script_);
  }

  void event(double t, const Value& payload) { raw(t, "data: " + json::dump(payload) + "\n\n"); }

  void raw(double t, std::string bytes) {
    if (shape_.crlf) {
      std::string with_cr;
      for (const char c : bytes) {
        if (c == '\n') with_cr += '\r';
        with_cr += c;
      }
      bytes = std::move(with_cr);
    }
    script_.chunks.push_back({t, std::move(bytes), Chunk::What::kBytes, shape_.byte_by_byte});
  }

  const StreamShape& shape_;
  Script script_;
  int total_ = 0, sent_ = 0;
};

struct IntMember {
  std::string_view name;
  int StreamShape::* member;
};
struct DoubleMember {
  std::string_view name;
  double StreamShape::* member;
};
struct BoolMember {
  std::string_view name;
  bool StreamShape::* member;
};
constexpr IntMember kInts[] = {{"n_tokens", &StreamShape::n_tokens}, {"tokens_per_event", &StreamShape::tokens_per_event},
                               {"first_event_tokens", &StreamShape::first_event_tokens}, {"reasoning_events", &StreamShape::reasoning_events},
                               {"tool_events", &StreamShape::tool_events}, {"prompt_tokens", &StreamShape::prompt_tokens},
                               {"cached_tokens", &StreamShape::cached_tokens}, {"usage_error", &StreamShape::usage_error},
                               {"stop_after", &StreamShape::stop_after}, {"break_after_event", &StreamShape::break_after_event},
                               {"stall_after_event", &StreamShape::stall_after_event}, {"error_after_event", &StreamShape::error_after_event},
                               {"events_per_write", &StreamShape::events_per_write}};
constexpr DoubleMember kDoubles[] = {{"first_ms", &StreamShape::first_ms}, {"gap_ms", &StreamShape::gap_ms}, {"role_ms", &StreamShape::role_ms},
                                     {"comment_every_ms", &StreamShape::comment_every_ms}, {"stall_ms", &StreamShape::stall_ms}};
constexpr BoolMember kBools[] = {{"usage", &StreamShape::usage}, {"usage_on_finish", &StreamShape::usage_on_finish},
                                 {"continuous_usage", &StreamShape::continuous_usage}, {"token_ids", &StreamShape::token_ids},
                                 {"crlf", &StreamShape::crlf}, {"byte_by_byte", &StreamShape::byte_by_byte}, {"done", &StreamShape::done}};

template <class Table>
auto find_member(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table), [&](const auto& m) { return m.name == name; });
}

}  // namespace

Script make_script(const StreamShape& shape) { return Writer(shape).write(); }

Result<StreamShape> shape_from_json(const Value& value, std::string_view subject) {
  StreamShape out;
  const json::Cursor root(value, std::string(subject), Code::kUsage);
  if (!value.is_object()) return root.fail("an object of stream members expected");
  for (const auto& [key, v] : value.as_object()) {
    DSF_TRY(const json::Cursor at, root.at(key));
    if (const auto* i = find_member(kInts, key); i != std::end(kInts)) {
      DSF_TRY(const int64_t n, at.integer(-1'000'000, 10'000'000));
      out.*i->member = static_cast<int>(n);
    } else if (const auto* d = find_member(kDoubles, key); d != std::end(kDoubles)) {
      DSF_TRY(out.*d->member, at.number());
    } else if (const auto* b = find_member(kBools, key); b != std::end(kBools)) {
      DSF_TRY(out.*b->member, at.boolean());
    } else {
      return at.fail("no such member of a stream shape");
    }
  }
  if (out.tokens_per_event < 1 || out.first_event_tokens < 1 || out.n_tokens < 1 || out.events_per_write < 1) return root.fail("token numbers start at 1");
  return out;
}

}  // namespace dsf::bench
