#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>

#include "dsf/base/time.h"
#include "tools/bench/scripted.h"

namespace dsf::bench {
namespace {

using json::Value;

void sleep_until(int64_t ns) {
  const timespec ts{ns / 1'000'000'000, ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, nullptr) == EINTR) {
  }
}

constexpr int64_t kLongSleepNs = 100'000'000;  // longer ones look at the end of the server in between

void send_json(http::ResponseWriter& out, int status, const Value& body) { out.send(status, {{"Content-Type", "application/json"}}, json::dump(body)); }

void send_error(http::ResponseWriter& out, int status, const std::string& message) {
  send_json(out, status, json::Object{{"error", json::Object{{"message", message}, {"type", "invalid_request_error"}, {"code", status}}}});
}

// Members of a chat request that OpenAI's own schema knows.
bool standard_member(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kKnown = {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
                                                              "temperature", "top_p", "seed", "stop", "tools", "tool_choice", "n", "reasoning_effort"};
  return std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
}

std::string content_of(const Value& body) {
  const Value* messages = body.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) return {};
  const Value* content = messages->as_array().front().find("content");
  return content != nullptr && content->is_string() ? content->as_string() : std::string();
}

}  // namespace

struct ScriptedServer::State {
  ScriptedOptions options;
  Scenario scenario;
  mutable std::mutex mutex;
  std::vector<Played> log;          // guarded by mutex
  std::set<std::string> seen;       // prompts, guarded by mutex
  std::atomic<int> index{0}, running{0};
  std::atomic<bool> stopping{false};
  std::atomic<int64_t> cache_queries{0}, cache_hits{0};
  std::unique_ptr<http::Server> server;  // last: its threads use the rest

  void handle(const http::ServerRequest& request, http::ResponseWriter& out) {
    const int64_t arrived_ns = monotonic_ns();
    if (request.path == "/v1/models") return send_json(out, 200, models());
    if (request.path == "/health" || request.path == "/version") return send_json(out, 200, json::Object{{"version", "scripted"}});
    if (request.path == "/metrics" && options.metrics) return out.send(200, {{"Content-Type", "text/plain"}}, metrics());
    if (request.path == "/tokenize" && options.tokenize) return tokenize(request, out);
    if (request.path == "/v1/chat/completions" && request.method == "POST") return chat(request, out, arrived_ns);
    send_error(out, 404, "no such path");
  }

  Value models() const {
    Value entry = json::Object{{"id", options.model}, {"object", "model"}, {"owned_by", "scripted"}};
    if (!options.identity.empty()) {
      Value identity = Value::object();
      for (const auto& [key, value] : options.identity) identity.set(key, value);
      entry.set("dsf", std::move(identity));
    }
    return json::Object{{"object", "list"}, {"data", json::Array{std::move(entry)}}};
  }

  std::string metrics() const {
    return "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"scripted\"} " + std::to_string(running.load()) +
           "\nvllm:prefix_cache_queries_total{model_name=\"scripted\"} " + std::to_string(cache_queries.load()) +
           "\nvllm:prefix_cache_hits_total{model_name=\"scripted\"} " + std::to_string(cache_hits.load()) + "\n";
  }

  // Words plus a constant for the template, so that a client can find an offset.
  void tokenize(const http::ServerRequest& request, http::ResponseWriter& out) const {
    const auto body = json::parse(request.body, "request");
    if (!body) return send_error(out, 400, "the request body is not JSON");
    const Value* prompt = body->find("prompt");
    const std::string text = prompt != nullptr && prompt->is_string() ? prompt->as_string() : content_of(*body);
    const auto words = std::count(text.begin(), text.end(), ' ') + std::count(text.begin(), text.end(), '\n');
    send_json(out, 200, json::Object{{"count", static_cast<int64_t>(words) + 1}});
  }

  void chat(const http::ServerRequest& request, http::ResponseWriter& out, int64_t arrived_ns) {
    const auto body = json::parse(request.body, "request");
    if (!body || !body->is_object()) return send_error(out, 400, "the request body is not JSON");
    if (options.strict) {
      for (const auto& [key, value] : body->as_object()) {
        if (!standard_member(key)) return send_error(out, 400, "unknown member '" + key + "'");
        if (key == "reasoning_effort" && !value.is_string()) return send_error(out, 400, "reasoning_effort must be a string");
      }
    }
    const Value* model = body->find("model");
    if (model == nullptr || !model->is_string() || model->as_string() != options.model) return send_error(out, 404, "The model does not exist.");
    if (options.prefix_cache) note_prompt(content_of(*body));
    const Script script = scenario(*body, index.fetch_add(1));
    running.fetch_add(1);
    Played played = play(script, out, arrived_ns);
    running.fetch_sub(1);
    played.path = request.path;
    played.body = request.body;
    const std::lock_guard lock(mutex);
    log.push_back(std::move(played));
  }

  void note_prompt(const std::string& prompt) {
    const std::lock_guard lock(mutex);
    cache_queries += static_cast<int64_t>(prompt.size());
    if (!seen.insert(prompt).second) cache_hits += static_cast<int64_t>(prompt.size());
  }

  // False when the server ends before that time.
  bool wait_until(int64_t ns) const {
    for (int64_t now = monotonic_ns(); ns - now > kLongSleepNs && !stopping; now = monotonic_ns()) sleep_until(now + kLongSleepNs / 2);
    if (stopping) return false;
    if (ns > monotonic_ns()) sleep_until(ns);
    return true;
  }

  Played play(const Script& script, http::ResponseWriter& out, int64_t arrived_ns) {
    Played played;
    played.arrived_ns = arrived_ns;
    sleep_until(arrived_ns + static_cast<int64_t>(script.response_delay_ms * 1e6));
    if (script.status != 200) {
      std::string body;
      for (const auto& chunk : script.chunks) body += chunk.bytes;
      out.send(script.status, script.headers, body);
      return played;
    }
    out.begin(200, script.headers);
    for (const auto& chunk : script.chunks) {
      const int64_t due = arrived_ns + static_cast<int64_t>(chunk.at_ms * 1e6);
      if (!wait_until(due)) {
        out.abort(true);
        return played;
      }
      if (chunk.what != Chunk::What::kBytes) {
        out.abort(chunk.what == Chunk::What::kReset);
        return played;
      }
      if (!write(chunk, out)) {
        played.client_gone = true;
        return played;
      }
      played.written_ns.push_back(monotonic_ns());
    }
    out.end();
    return played;
  }

  static bool write(const Chunk& chunk, http::ResponseWriter& out) {
    if (!chunk.byte_by_byte) return out.write(chunk.bytes);
    for (const char& c : chunk.bytes) {
      if (!out.write(std::string_view(&c, 1))) return false;
    }
    return true;
  }
};

ScriptedServer::ScriptedServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ScriptedServer::~ScriptedServer() {
  state_->stopping = true;
  state_->server->stop();
}

Result<std::unique_ptr<ScriptedServer>> ScriptedServer::start(ScriptedOptions options, Scenario scenario) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->scenario = std::move(scenario);
  http::ServerOptions server;
  server.host = state->options.host;
  server.port = state->options.port;
  State* raw = state.get();
  DSF_TRY(state->server, http::Server::listen(server, [raw](const http::ServerRequest& request, http::ResponseWriter& out) { raw->handle(request, out); }));
  return std::unique_ptr<ScriptedServer>(new ScriptedServer(std::move(state)));
}

std::string ScriptedServer::base_url() const { return state_->server->base_url() + "/v1"; }
uint16_t ScriptedServer::port() const { return state_->server->port(); }

std::vector<Played> ScriptedServer::played() const {
  const std::lock_guard lock(state_->mutex);
  return state_->log;
}
void ScriptedServer::clear_played() {
  const std::lock_guard lock(state_->mutex);
  state_->log.clear();
}

}  // namespace dsf::bench
