#include "tools/bench/made_stream.h"

#include "dsf/json/json.h"

namespace dsf::bench::made {
namespace {

std::string token_event(std::string_view field, std::string_view text, int tokens, bool with_ids) {
  std::string ids;
  for (int i = 0; i < tokens; ++i) ids += (i > 0 ? "," : "") + std::to_string(100 + i);
  std::string choice = R"({"index":0,"delta":{")" + std::string(field) + "\":" + json::quote(text) + "}";
  if (with_ids) choice += ",\"token_ids\":[" + ids + "]";
  return sse_data(R"({"choices":[)" + choice + R"(,"finish_reason":null}],"usage":null})");
}

}  // namespace

std::string sse_data(std::string_view payload) { return "data: " + std::string(payload) + "\n\n"; }
std::string role_event() { return sse_data(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]})"); }
std::string reasoning_event(std::string_view text, int tokens, bool with_ids) {
  return token_event("reasoning_content", text, tokens, with_ids);
}
std::string content_event(std::string_view text, int tokens, bool with_ids) { return token_event("content", text, tokens, with_ids); }
std::string finish_event(std::string_view reason) {
  return sse_data(R"({"choices":[{"index":0,"delta":{},"finish_reason":")" + std::string(reason) + R"("}]})");
}
std::string usage_event(int prompt, int completion, int cached) {
  return sse_data(R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt) + R"(,"completion_tokens":)" +
              std::to_string(completion) + R"(,"total_tokens":)" + std::to_string(prompt + completion) +
              R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(cached) + "}}}");
}

Capture capture_of(const std::vector<Piece>& pieces, double release_ms) {
  Capture c;
  c.t.release = ms(release_ms);
  c.http.status = 200;
  c.http.content_type = "text/event-stream";
  for (const auto& piece : pieces) {
    c.body += piece.bytes;
    c.reads.push_back({ms(piece.at_ms), static_cast<int64_t>(piece.bytes.size()), c.body.size()});
  }
  if (!c.reads.empty()) {
    c.t.headers = c.t.first_byte = c.reads.front().t;
    c.t.end = c.reads.back().t;
  }
  return c;
}

Capture capture_split(std::string_view bytes, const std::vector<size_t>& sizes) {
  std::vector<Piece> pieces;
  for (const size_t size : sizes) {
    if (bytes.empty()) break;
    pieces.push_back({static_cast<double>(pieces.size()), std::string(bytes.substr(0, size))});
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  if (!bytes.empty()) pieces.push_back({static_cast<double>(pieces.size()), std::string(bytes)});
  return capture_of(pieces);
}

Request request_of(const Capture& capture, int64_t max_tokens) {
  Request r;
  r.max_tokens = max_tokens;
  assemble(capture, r);
  return r;
}

std::string facts(const Request& r, bool with_comments) {
  json::Array events;
  for (const auto& e : r.events) {
    if (with_comments || e.kind != EventKind::kComment) events.push_back(json::Array{name_of(e.kind), e.chars, e.tok ? json::Value(*e.tok) : json::Value()});
  }
  json::Value whole = to_json(r, "");
  json::Value out = json::Object{{"events", std::move(events)}};
  for (const char* key : {"status", "first_token_source", "weight_source", "token_count_source", "n_tokens", "counts", "output", "server_ext"}) out.set(key, *whole.find(key));
  return json::dump(out);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

std::vector<Piece> vector_a(bool with_ids) {
  return {{120, role_event()},
          {500, reasoning_event("One", 1, with_ids)},
          {560, reasoning_event(" two three", 4, with_ids)},
          {620, reasoning_event(" four", 3, with_ids)},
          {690, reasoning_event(" \xF0\x9F\x98\x80 five", 4, with_ids)},
          {750, content_event("Six", 4, with_ids)},
          {751, finish_event("length")},
          {752, usage_event(480, 16) + "data: [DONE]\n\n"}};
}

std::string bytes_of(const std::vector<Piece>& pieces) {
  std::string out;
  for (const auto& p : pieces) out += p.bytes;
  return out;
}

Request tokens_only(double release_ms, const std::vector<Token>& tokens, int prompt, bool known_weights) {
  Request r;
  r.t.release = ms(release_ms);
  int64_t n = 0;
  for (const auto& token : tokens) {
    r.events.push_back({ms(token.at_ms), 0, EventKind::kContent, 1, std::nullopt});
    if (known_weights) r.events.back().tok = token.w;
    n += token.w;
  }
  r.t.first_token = r.t.first_content = ms(tokens.front().at_ms);
  r.t.last_token = ms(tokens.back().at_ms);
  r.n_tokens = n;
  r.usage.completion = n;
  r.usage.prompt = prompt;
  r.weight_source = known_weights ? "token_ids" : "uniform";
  r.token_count_source = "usage";
  r.first_token_source = "delta";
  return r;
}

}  // namespace dsf::bench::made
