// The raw record's JSON, both ways. Order of members is that of bench.md 3.1.
#include <array>
#include <utility>

#include "tools/bench/fields.h"
#include "tools/bench/record.h"

namespace dsf::bench {
namespace {

using json::Value;

constexpr std::array<Field<Request>, 8> kPlace = {{{"id", &Request::id},
                                                   {"phase", &Request::phase},
                                                   {"thinking", &Request::thinking},
                                                   {"repeat", &Request::repeat},
                                                   {"c", &Request::c},
                                                   {"slot", &Request::slot},
                                                   {"attempt", &Request::attempt, true},
                                                   {"warmup", &Request::warmup}}};
constexpr std::array<Field<Request>, 3> kPrompt = {{{"key", &Request::prompt_key}, {"sha256", &Request::prompt_sha256}, {"bytes", &Request::prompt_bytes}}};
constexpr std::array<Field<Request>, 3> kBody = {{{"body_sha256", &Request::body_sha256}, {"body_norm_sha256", &Request::body_norm_sha256}, {"max_tokens", &Request::max_tokens}}};
constexpr std::array<Field<Request>, 3> kTokens = {{{"weight_source", &Request::weight_source}, {"token_count_source", &Request::token_count_source}, {"n_tokens", &Request::n_tokens}}};
constexpr std::array<Field<Request>, 1> kClient = {{{"loop_lag_max_ns", &Request::loop_lag_max_ns}}};
constexpr std::array<Field<Stamps>, 13> kStamps = {{{"scheduled", &Stamps::scheduled},
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
constexpr std::array<Field<Usage>, 5> kCounts = {
    {{"prompt", &Usage::prompt}, {"completion", &Usage::completion}, {"total", &Usage::total}, {"cached", &Usage::cached}, {"reasoning", &Usage::reasoning}}};
constexpr std::array<Field<Output>, 10> kOutput = {{{"finish_reason", &Output::finish_reason},
                                                    {"chars", &Output::chars},
                                                    {"reasoning_events", &Output::reasoning_events},
                                                    {"content_events", &Output::content_events},
                                                    {"tool_events", &Output::tool_events},
                                                    {"text_sha256", &Output::text_sha256},
                                                    {"reasoning_sha256", &Output::reasoning_sha256},
                                                    {"content_sha256", &Output::content_sha256},
                                                    {"token_ids_sha256", &Output::token_ids_sha256},
                                                    {"starts_with_think", &Output::starts_with_think}}};
constexpr std::array<Field<HttpInfo>, 13> kHttp = {{{"status", &HttpInfo::status},
                                                    {"version", &HttpInfo::version},
                                                    {"content_type", &HttpInfo::content_type},
                                                    {"remote", &HttpInfo::remote},
                                                    {"local_port", &HttpInfo::local_port},
                                                    {"conn_reused", &HttpInfo::conn_reused},
                                                    {"new_connects", &HttpInfo::new_connects},
                                                    {"closed_by_server", &HttpInfo::closed_by_server},
                                                    {"bytes_up", &HttpInfo::bytes_up},
                                                    {"bytes_down", &HttpInfo::bytes_down},
                                                    {"server", &HttpInfo::server},
                                                    {"request_id", &HttpInfo::request_id},
                                                    {"error_body", &HttpInfo::error_body}}};

// A member that is itself one of those tables.
template <class T, class Table>
Value nested(const T& from, const Table& table) {
  Value out = Value::object();
  write_fields(out, from, table);
  return out;
}

template <class T, class Table>
Result<void> read_nested(const json::Cursor& at, std::string_view key, T& to, const Table& table) {
  DSF_TRY(const json::Cursor member, at.at(key));
  return read_fields(member, to, table);
}

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

// Readers: a Cursor keeps the path of what was wrong.
using json::Cursor;

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

Result<void> read_identity(const Cursor& at, Request& r) {
  DSF_OK(read_fields(at, r, kPlace));
  DSF_TRY(const std::string status, at.string_at("status"));
  const auto known = status_named(status);
  if (!known) return at.fail("unknown status '" + status + "'");
  r.status = *known;
  DSF_TRY(r.error, at.string_or("error", ""));
  DSF_OK(read_nested(at, "prompt", r, kPrompt));
  if (r.id.empty() || r.phase.empty() || r.prompt_sha256.empty()) return at.fail("a request without id, phase or prompt hash");
  return read_fields(at, r, kBody);
}

Result<void> read_measured(const Cursor& at, Request& r) {
  DSF_OK(read_nested(at, "t", r.t, kStamps));
  DSF_TRY(r.first_token_source, at.string_or("first_token_source", ""));
  DSF_TRY(const Cursor events, at.at("events"));
  DSF_TRY(r.events, read_events(events));
  DSF_TRY(const Cursor reads, at.at("reads"));
  DSF_TRY(r.reads, read_reads(reads));
  for (const auto& e : r.events) {
    if (e.read >= static_cast<int64_t>(r.reads.size())) return events.fail("an event names a read that is not there");
  }
  DSF_OK(read_fields(at, r, kTokens));
  DSF_OK(read_nested(at, "counts", r.usage, kCounts));
  if (const auto usage = at.maybe("usage")) r.usage_raw = usage->value();
  DSF_OK(read_nested(at, "output", r.output, kOutput));
  DSF_TRY(const Cursor output, at.at("output"));
  if (const auto text = output.maybe("text")) {
    DSF_TRY(r.output.text, text->string());
  }
  DSF_OK(read_nested(at, "http", r.http, kHttp));
  if (const auto ext = at.maybe("server_ext")) r.server_ext = ext->value();
  if (const auto flags = at.maybe("flags")) {
    DSF_TRY(const std::vector<Cursor> elements, flags->elements());
    for (const auto& e : elements) {
      DSF_TRY(std::string flag, e.string());
      r.flags.push_back(std::move(flag));
    }
  }
  return read_nested(at, "client", r, kClient);
}

}  // namespace

Value to_json(const Request& r, std::string_view run_id) {
  Value out = Value::object();
  out.set("type", "request");
  out.set("schema", kRawSchema);
  out.set("run_id", run_id);
  write_fields(out, r, kPlace);
  out.set("status", name_of(r.status));
  out.set("error", or_null(r.error));
  out.set("prompt", nested(r, kPrompt));
  write_fields(out, r, kBody);
  out.set("t", nested(r.t, kStamps));
  out.set("first_token_source", or_null(r.first_token_source));
  out.set("events", events_json(r.events));
  out.set("reads", reads_json(r.reads));
  write_fields(out, r, kTokens);
  out.set("counts", nested(r.usage, kCounts));
  out.set("usage", r.usage_raw);
  Value output = nested(r.output, kOutput);
  output.set("text", r.output.text ? Value(*r.output.text) : Value());
  out.set("output", std::move(output));
  out.set("http", nested(r.http, kHttp));
  out.set("server_ext", r.server_ext);
  json::Array flags;
  for (const auto& f : r.flags) flags.emplace_back(f);
  out.set("flags", std::move(flags));
  out.set("client", nested(r, kClient));
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
