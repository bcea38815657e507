// The raw record's JSON, both ways. Order of members is that of bench.md 3.1.
#include <array>
#include <utility>

#include "tools/bench/record.h"

namespace dsf::bench {
namespace {

using json::Value;

struct StampName {
  std::string_view name;
  Stamps::Time Stamps::* member;
};
constexpr std::array<StampName, 13> kStamps = {{{"scheduled", &Stamps::scheduled},
                                                {"release", &Stamps::release},
                                                {"sent", &Stamps::sent},
                                                {"headers", &Stamps::headers},
                                                {"first_byte", &Stamps::first_byte},
                                                {"first_event", &Stamps::first_event},
                                                {"first_token", &Stamps::first_token},
                                                {"first_content", &Stamps::first_content},
                                                {"last_token", &Stamps::last_token},
                                                {"finish_event", &Stamps::finish_event},
                                                {"usage_event", &Stamps::usage_event},
                                                {"done", &Stamps::done},
                                                {"end", &Stamps::end}}};

Value or_null(const std::optional<int64_t>& v) { return v ? Value(*v) : Value(); }
Value or_null(const std::string& s) { return s.empty() ? Value() : Value(s); }

Value events_json(const std::vector<EventRow>& events) {
  json::Array t, read, kind, chars, tok;
  for (const auto& e : events) {
    t.emplace_back(e.t);
    read.emplace_back(e.read);
    kind.emplace_back(name_of(e.kind));
    chars.emplace_back(e.chars);
    tok.push_back(or_null(e.tok));
  }
  Value out = Value::object();
  out.set("t", std::move(t));
  out.set("read", std::move(read));
  out.set("kind", std::move(kind));
  out.set("chars", std::move(chars));
  out.set("tok", std::move(tok));
  return out;
}

Value reads_json(const std::vector<ReadRow>& reads) {
  json::Array t, bytes;
  for (const auto& r : reads) {
    t.emplace_back(r.t);
    bytes.emplace_back(r.bytes);
  }
  Value out = Value::object();
  out.set("t", std::move(t));
  out.set("bytes", std::move(bytes));
  return out;
}

Value output_json(const Output& o) {
  Value out = Value::object();
  out.set("finish_reason", or_null(o.finish_reason));
  out.set("chars", o.chars);
  out.set("reasoning_events", o.reasoning_events);
  out.set("content_events", o.content_events);
  out.set("tool_events", o.tool_events);
  out.set("text_sha256", or_null(o.text_sha256));
  out.set("reasoning_sha256", or_null(o.reasoning_sha256));
  out.set("content_sha256", or_null(o.content_sha256));
  out.set("token_ids_sha256", or_null(o.token_ids_sha256));
  out.set("starts_with_think", o.starts_with_think);
  out.set("text", o.text ? Value(*o.text) : Value());
  return out;
}

Value http_json(const HttpInfo& h) {
  Value out = Value::object();
  out.set("status", h.status);
  out.set("version", or_null(h.version));
  out.set("content_type", or_null(h.content_type));
  out.set("remote", or_null(h.remote));
  out.set("local_port", h.local_port);
  out.set("conn_reused", h.conn_reused);
  out.set("new_connects", h.new_connects);
  out.set("closed_by_server", h.closed_by_server);
  out.set("bytes_up", h.bytes_up);
  out.set("bytes_down", h.bytes_down);
  out.set("server", or_null(h.server));
  out.set("request_id", or_null(h.request_id));
  out.set("error_body", or_null(h.error_body));
  return out;
}

// Readers: a Cursor keeps the path of what was wrong.
using json::Cursor;

Result<std::optional<int64_t>> optional_int(const Cursor& at, std::string_view key) {
  const auto member = at.maybe(key);
  if (!member) return std::optional<int64_t>();
  DSF_TRY(const int64_t v, member->integer());
  return std::optional<int64_t>(v);
}

Result<std::string> text_or_empty(const Cursor& at, std::string_view key) { return at.string_or(key, ""); }

Result<std::vector<EventRow>> read_events(const Cursor& at) {
  DSF_TRY(const Cursor times, at.at("t"));
  DSF_TRY(const std::vector<int64_t> t, times.integers());
  DSF_TRY(const Cursor read_cursor, at.at("read"));
  DSF_TRY(const std::vector<int64_t> read, read_cursor.integers(0));
  DSF_TRY(const Cursor chars_cursor, at.at("chars"));
  DSF_TRY(const std::vector<int64_t> chars, chars_cursor.integers(0));
  DSF_TRY(const Cursor kind_cursor, at.at("kind"));
  DSF_TRY(const std::vector<Cursor> kinds, kind_cursor.elements());
  DSF_TRY(const Cursor tok_cursor, at.at("tok"));
  DSF_TRY(const std::vector<Cursor> tok, tok_cursor.elements());
  if (read.size() != t.size() || chars.size() != t.size() || kinds.size() != t.size() || tok.size() != t.size()) {
    return at.fail("parallel arrays of different lengths");
  }
  std::vector<EventRow> out(t.size());
  for (size_t i = 0; i < t.size(); ++i) {
    DSF_TRY(const std::string name, kinds[i].string());
    const auto kind = event_kind_named(name);
    if (!kind) return kinds[i].fail("unknown event kind '" + name + "'");
    out[i] = {t[i], read[i], *kind, chars[i], std::nullopt};
    if (tok[i].value().is_null()) continue;
    DSF_TRY(const int64_t n, tok[i].integer(0));
    out[i].tok = n;
  }
  return out;
}

Result<std::vector<ReadRow>> read_reads(const Cursor& at) {
  DSF_TRY(const Cursor times, at.at("t"));
  DSF_TRY(const std::vector<int64_t> t, times.integers());
  DSF_TRY(const Cursor bytes_cursor, at.at("bytes"));
  DSF_TRY(const std::vector<int64_t> bytes, bytes_cursor.integers(0));
  if (bytes.size() != t.size()) return at.fail("parallel arrays of different lengths");
  std::vector<ReadRow> out(t.size());
  for (size_t i = 0; i < t.size(); ++i) out[i] = {t[i], bytes[i]};
  return out;
}

Result<Usage> read_counts(const Cursor& at) {
  Usage out;
  DSF_TRY(out.prompt, optional_int(at, "prompt"));
  DSF_TRY(out.completion, optional_int(at, "completion"));
  DSF_TRY(out.total, optional_int(at, "total"));
  DSF_TRY(out.cached, optional_int(at, "cached"));
  DSF_TRY(out.reasoning, optional_int(at, "reasoning"));
  return out;
}

Result<Output> read_output(const Cursor& at) {
  Output out;
  DSF_TRY(out.finish_reason, text_or_empty(at, "finish_reason"));
  DSF_TRY(out.chars, at.integer_or("chars", 0));
  DSF_TRY(out.reasoning_events, at.integer_or("reasoning_events", 0));
  DSF_TRY(out.content_events, at.integer_or("content_events", 0));
  DSF_TRY(out.tool_events, at.integer_or("tool_events", 0));
  DSF_TRY(out.text_sha256, text_or_empty(at, "text_sha256"));
  DSF_TRY(out.reasoning_sha256, text_or_empty(at, "reasoning_sha256"));
  DSF_TRY(out.content_sha256, text_or_empty(at, "content_sha256"));
  DSF_TRY(out.token_ids_sha256, text_or_empty(at, "token_ids_sha256"));
  DSF_TRY(out.starts_with_think, at.boolean_or("starts_with_think", false));
  if (const auto text = at.maybe("text")) {
    DSF_TRY(out.text, text->string());
  }
  return out;
}

Result<HttpInfo> read_http(const Cursor& at) {
  HttpInfo out;
  DSF_TRY(out.status, at.integer_or("status", 0));
  DSF_TRY(out.version, text_or_empty(at, "version"));
  DSF_TRY(out.content_type, text_or_empty(at, "content_type"));
  DSF_TRY(out.remote, text_or_empty(at, "remote"));
  DSF_TRY(out.local_port, at.integer_or("local_port", 0));
  DSF_TRY(out.conn_reused, at.boolean_or("conn_reused", false));
  DSF_TRY(out.new_connects, at.integer_or("new_connects", 0));
  DSF_TRY(out.closed_by_server, at.boolean_or("closed_by_server", false));
  DSF_TRY(out.bytes_up, at.integer_or("bytes_up", 0));
  DSF_TRY(out.bytes_down, at.integer_or("bytes_down", 0));
  DSF_TRY(out.server, text_or_empty(at, "server"));
  DSF_TRY(out.request_id, text_or_empty(at, "request_id"));
  DSF_TRY(out.error_body, text_or_empty(at, "error_body"));
  return out;
}

Result<void> read_identity(const Cursor& at, Request& r) {
  DSF_TRY(r.id, at.string_at("id"));
  DSF_TRY(r.phase, at.string_at("phase"));
  DSF_TRY(r.thinking, at.string_at("thinking"));
  DSF_TRY(r.repeat, at.integer_at("repeat", 0));
  DSF_TRY(r.c, at.integer_at("c", 0));
  DSF_TRY(r.slot, at.integer_at("slot", 0));
  DSF_TRY(r.attempt, at.integer_or("attempt", 0, 0));
  DSF_TRY(r.warmup, at.boolean_or("warmup", false));
  DSF_TRY(const std::string status, at.string_at("status"));
  const auto known = status_named(status);
  if (!known) return at.fail("unknown status '" + status + "'");
  r.status = *known;
  DSF_TRY(r.error, text_or_empty(at, "error"));
  DSF_TRY(const Cursor prompt, at.at("prompt"));
  DSF_TRY(r.prompt_key, text_or_empty(prompt, "key"));
  DSF_TRY(r.prompt_sha256, prompt.string_at("sha256"));
  DSF_TRY(r.prompt_bytes, prompt.integer_at("bytes", 0));
  DSF_TRY(r.body_sha256, text_or_empty(at, "body_sha256"));
  DSF_TRY(r.body_norm_sha256, text_or_empty(at, "body_norm_sha256"));
  DSF_TRY(r.max_tokens, at.integer_or("max_tokens", 0));
  return {};
}

Result<void> read_measured(const Cursor& at, Request& r) {
  DSF_TRY(const Cursor t, at.at("t"));
  for (const auto& stamp : kStamps) {
    DSF_TRY(r.t.*stamp.member, optional_int(t, stamp.name));
  }
  DSF_TRY(r.first_token_source, text_or_empty(at, "first_token_source"));
  DSF_TRY(const Cursor events, at.at("events"));
  DSF_TRY(r.events, read_events(events));
  DSF_TRY(const Cursor reads, at.at("reads"));
  DSF_TRY(r.reads, read_reads(reads));
  for (const auto& e : r.events) {
    if (e.read >= static_cast<int64_t>(r.reads.size())) return events.fail("an event names a read that is not there");
  }
  DSF_TRY(r.weight_source, text_or_empty(at, "weight_source"));
  DSF_TRY(r.token_count_source, text_or_empty(at, "token_count_source"));
  DSF_TRY(r.n_tokens, optional_int(at, "n_tokens"));
  DSF_TRY(const Cursor counts, at.at("counts"));
  DSF_TRY(r.usage, read_counts(counts));
  if (const auto usage = at.maybe("usage")) r.usage_raw = usage->value();
  DSF_TRY(const Cursor output, at.at("output"));
  DSF_TRY(r.output, read_output(output));
  DSF_TRY(const Cursor http, at.at("http"));
  DSF_TRY(r.http, read_http(http));
  if (const auto ext = at.maybe("server_ext")) r.server_ext = ext->value();
  if (const auto flags = at.maybe("flags")) {
    DSF_TRY(const std::vector<Cursor> elements, flags->elements());
    for (const auto& e : elements) {
      DSF_TRY(std::string flag, e.string());
      r.flags.push_back(std::move(flag));
    }
  }
  DSF_TRY(const Cursor client, at.at("client"));
  DSF_TRY(r.loop_lag_max_ns, client.integer_or("loop_lag_max_ns", 0));
  return {};
}

Value identity_json(const Request& r, std::string_view run_id) {
  Value out = Value::object();
  out.set("type", "request");
  out.set("schema", kRawSchema);
  out.set("run_id", run_id);
  out.set("id", r.id);
  out.set("phase", r.phase);
  out.set("thinking", r.thinking);
  out.set("repeat", r.repeat);
  out.set("c", r.c);
  out.set("slot", r.slot);
  out.set("attempt", r.attempt);
  out.set("warmup", r.warmup);
  out.set("status", name_of(r.status));
  out.set("error", or_null(r.error));
  Value prompt = Value::object();
  prompt.set("key", or_null(r.prompt_key));
  prompt.set("sha256", r.prompt_sha256);
  prompt.set("bytes", r.prompt_bytes);
  out.set("prompt", std::move(prompt));
  out.set("body_sha256", or_null(r.body_sha256));
  out.set("body_norm_sha256", or_null(r.body_norm_sha256));
  out.set("max_tokens", r.max_tokens);
  return out;
}

}  // namespace

Value to_json(const Request& r, std::string_view run_id) {
  Value out = identity_json(r, run_id);
  Value t = Value::object();
  for (const auto& stamp : kStamps) t.set(stamp.name, or_null(r.t.*stamp.member));
  out.set("t", std::move(t));
  out.set("first_token_source", or_null(r.first_token_source));
  out.set("events", events_json(r.events));
  out.set("reads", reads_json(r.reads));
  out.set("weight_source", or_null(r.weight_source));
  out.set("token_count_source", or_null(r.token_count_source));
  out.set("n_tokens", or_null(r.n_tokens));
  Value counts = Value::object();
  counts.set("prompt", or_null(r.usage.prompt));
  counts.set("completion", or_null(r.usage.completion));
  counts.set("total", or_null(r.usage.total));
  counts.set("cached", or_null(r.usage.cached));
  counts.set("reasoning", or_null(r.usage.reasoning));
  out.set("counts", std::move(counts));
  out.set("usage", r.usage_raw);
  out.set("output", output_json(r.output));
  out.set("http", http_json(r.http));
  out.set("server_ext", r.server_ext);
  json::Array flags;
  for (const auto& f : r.flags) flags.emplace_back(f);
  out.set("flags", std::move(flags));
  Value client = Value::object();
  client.set("loop_lag_max_ns", r.loop_lag_max_ns);
  out.set("client", std::move(client));
  return out;
}

Result<Request> request_from_json(const Value& value, std::string_view subject) {
  const Cursor at(value, std::string(subject));
  Request r;
  DSF_OK(read_identity(at, r));
  DSF_OK(read_measured(at, r));
  return r;
}

}  // namespace dsf::bench
