#include "tools/serve/api/service.h"

#include <sys/random.h>

#include <algorithm>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "tools/serve/api/chat.h"
#include "tools/serve/api/completions.h"

namespace dsf::serve {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// First dozen digits of the checkpoint's digest, when there is one.
std::string fingerprint_of(const Pairs& identity) {
  for (const auto& [key, value] : identity) {
    if (key == "checkpoint_sha256") return "dsf_" + value.substr(0, 12);
  }
  return "dsf";
}

Pairs joined(Pairs files, const Pairs& engine) {
  for (const auto& pair : engine) {
    if (!pair.first.ends_with("_dir")) files.push_back(pair);  // where things lie is nobody else's business
  }
  return files;
}

json::Value identity_object(const Pairs& identity) {
  json::Value out = json::Value::object();
  for (const auto& [key, value] : identity) out.set(key, value);
  return out;
}

}  // namespace

uint64_t random_u64() {
  uint64_t value = 0;
  DSF_CHECK(getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value),
            "the system's random source gives bytes");
  return value;
}

std::string random_hex(size_t n_digits) {
  std::string out;
  while (out.size() < n_digits) {
    const uint64_t value = random_u64();
    out += to_hex(std::as_bytes(std::span(&value, 1)));
  }
  return out.substr(0, n_digits);
}

void send_json(Context& context, http::ResponseWriter& out, int status, const json::Value& body, http::Headers extra) {
  extra.insert(extra.begin(), {"Content-Type", "application/json"});
  context.metrics.request(status);
  out.send(status, extra, json::dump(body));
}

void send_error(Context& context, http::ResponseWriter& out, const ApiError& error) {
  http::Headers headers;
  if (error.retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  send_json(context, out, error.status, error.body(), std::move(headers));
}

ApiResult<json::Value> parse_body(const http::ServerRequest& request) {
  json::ParseOptions options;
  options.reject_duplicate_keys = false;  // the last one counts, as in every other server
  auto body = json::parse(request.body, "request body", options);
  if (!body) return refuse("the request body is not JSON (" + body.error().what + ")");
  if (!body->is_object()) return refuse("the request body must be a JSON object");
  return std::move(*body);
}

ApiResult<void> check_model(const Context& context, const std::string& model) {
  const auto& names = context.options.model_names;
  if (model.empty() || std::find(names.begin(), names.end(), model) != names.end()) return {};
  return refuse_with(404, "The model " + model + " does not exist.", "model", "model_not_found");
}

Service::Service(EngineLoop& loop, tokenizer::Tokenizer tokenizer, tokenizer::ControlIds ids, ServiceOptions options)
    : context_{loop, std::move(tokenizer), ids, std::move(options), {}, monotonic_ns(), unix_time_ms() / 1000, {}, {},
               {}},
      last_request_ns_(monotonic_ns()) {
  context_.identity = joined(context_.options.identity, loop.identity());
  context_.fingerprint = fingerprint_of(context_.identity);
  context_.trie =
      std::make_shared<const grammar::TokenTrie>(grammar::TokenTrie::make(context_.tokenizer, context_.vocab_size()));
}

http::ErrorBody Service::error_body(int status, std::string_view reason) {
  const ApiError error{status, std::string(reason), {}, {}};
  return {"application/json", json::dump(error.body())};
}

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> kRoutes{
      {"POST", "/v1/chat/completions", &Service::chat, false},
      {"POST", "/v1/completions", &Service::completions, false},
      {"GET", "/v1/models", &Service::models, false},
      {"POST", "/tokenize", &Service::tokenize, false},
      {"POST", "/v1/tokenize", &Service::tokenize, false},
      {"POST", "/detokenize", &Service::detokenize, false},
      {"POST", "/v1/detokenize", &Service::detokenize, false},
      {"GET", "/health", &Service::health, true},
      {"GET", "/v1/health", &Service::health, true},
      {"GET", "/metrics", &Service::metrics, true},
      {"GET", "/version", &Service::version, true},
      {"GET", "/ping", &Service::ping, true},
  };
  return kRoutes;
}

void Service::handle(const http::ServerRequest& request, http::ResponseWriter& out) {
  last_request_ns_ = monotonic_ns();
  std::string_view path = request.path;
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const bool one_model = path.starts_with("/v1/models/");
  const Route* found = nullptr;
  std::string allowed;
  for (const Route& route : routes()) {
    if (route.path != (one_model ? std::string_view("/v1/models") : path)) continue;
    allowed = route.method == "GET" ? "GET, HEAD" : std::string(route.method);
    if (request.method == route.method || (request.method == "HEAD" && route.method == "GET")) found = &route;
  }
  if (allowed.empty())
    return send_error(context_, out, {404, "Unknown path " + std::string(path) + ".", {}, "not_found"});
  if (found == nullptr) {
    const ApiError error{
        405, "Method " + request.method + " is not allowed for " + std::string(path) + ".", {}, "method_not_allowed"};
    return send_json(context_, out, 405, error.body(), {{"Allow", allowed}});
  }
  if (!found->open && !authorised(request)) {
    const ApiError error{401, "Missing or wrong API key.", {}, "invalid_api_key"};
    return send_json(context_, out, 401, error.body(), {{"WWW-Authenticate", "Bearer"}});
  }
  (this->*found->endpoint)(request, out);
}

bool Service::authorised(const http::ServerRequest& request) const {
  const std::string& key = context_.options.api_key;
  if (key.empty()) return true;
  std::string_view given = request.header("Authorization");
  if (given.starts_with("Bearer ")) {
    given.remove_prefix(7);
  } else {
    given = request.header("x-api-key");
  }
  // Every byte is looked at, so that the time says nothing about how much of the key was right.
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

void Service::chat(const http::ServerRequest& request, http::ResponseWriter& out) {
  const auto body = parse_body(request);
  if (!body) return send_error(context_, out, body.error());
  auto plan = plan_chat(context_, *body);
  if (!plan) return send_error(context_, out, plan.error());
  std::vector<Part> parts;
  for (int64_t i = 0; i < plan->common.n; ++i) {
    auto generation = chat_request(context_, *plan, i);
    if (!generation) return send_error(context_, out, generation.error());
    parts.push_back({std::move(*generation), std::make_unique<ChatReply>(context_, *plan, i), i == 0});
  }
  const std::string& model = plan->common.model.empty() ? context_.options.model_names.front() : plan->common.model;
  const Envelope envelope{"chatcmpl-" + random_hex(24), "chat.completion",  "chat.completion.chunk", model,
                          unix_time_ms() / 1000,        plan->common.stream};
  generate(context_, envelope, std::move(parts), out);
}

void Service::completions(const http::ServerRequest& request, http::ResponseWriter& out) {
  const auto body = parse_body(request);
  if (!body) return send_error(context_, out, body.error());
  const auto plan = plan_completion(context_, *body);
  if (!plan) return send_error(context_, out, plan.error());
  std::vector<Part> parts;
  for (size_t i = 0; i < n_choices(*plan); ++i) {
    auto generation = completion_request(context_, *plan, i);
    if (!generation) return send_error(context_, out, generation.error());
    const bool first = i % static_cast<size_t>(plan->common.n) == 0;
    parts.push_back({std::move(*generation), std::make_unique<TextReply>(context_, *plan, i), first});
  }
  const std::string& model = plan->common.model.empty() ? context_.options.model_names.front() : plan->common.model;
  const Envelope envelope{"cmpl-" + random_hex(24), "text_completion",  "text_completion", model,
                          unix_time_ms() / 1000,    plan->common.stream};
  generate(context_, envelope, std::move(parts), out);
}

json::Value Service::model_object(const std::string& name) const {
  const int64_t limit = context_.max_model_len();
  const int64_t max_reply = context_.options.max_reply > 0 ? std::min(limit, context_.options.max_reply) : limit;
  const bool as_system = context_.options.developer == tokenizer::DeveloperRole::kSystem;
  return json::Object{{"id", name},
                      {"object", "model"},
                      {"created", context_.created_s},
                      {"owned_by", "dsf"},
                      {"root", context_.options.root},
                      {"max_model_len", limit},
                      {"context_length", limit},
                      {"max_reply", max_reply},
                      {"developer_role", as_system ? "system" : "user"},
                      {"server", context_.options.version},
                      {"identity", identity_object(context_.identity)}};
}

void Service::models(const http::ServerRequest& request, http::ResponseWriter& out) {
  const auto& names = context_.options.model_names;
  const size_t prefix = std::string_view("/v1/models/").size();
  if (request.path.size() > prefix) {
    const std::string name = request.path.substr(prefix);
    if (const auto known = check_model(context_, name); !known) return send_error(context_, out, known.error());
    return send_json(context_, out, 200, model_object(name));
  }
  json::Value list = json::Value::array();
  for (const std::string& name : names) list.push(model_object(name));
  send_json(context_, out, 200, json::Object{{"object", "list"}, {"data", std::move(list)}});
}

void Service::tokenize(const http::ServerRequest& request, http::ResponseWriter& out) {
  const auto body = parse_body(request);
  if (!body) return send_error(context_, out, body.error());
  std::vector<int32_t> ids;
  if (body->find("messages") != nullptr) {
    auto plan = plan_chat(context_, *body, true);
    if (!plan) return send_error(context_, out, plan.error());
    ids = std::move(plan->ids);
  } else {
    const auto prompt = Fields(*body).string("prompt");
    if (!prompt) return send_error(context_, out, prompt.error());
    if (!*prompt) return send_error(context_, out, {400, "prompt or messages is required", "prompt", {}});
    ids = context_.tokenizer.encode(**prompt, tokenizer::Specials::kParse);
  }
  json::Value tokens = json::Value::array(), strings = json::Value::array();
  for (const int32_t id : ids) {
    tokens.push(id);
    strings.push(context_.tokenizer.token(id));
  }
  send_json(context_, out, 200,
            json::Object{{"count", ids.size()},
                         {"max_model_len", context_.max_model_len()},
                         {"tokens", std::move(tokens)},
                         {"token_strs", std::move(strings)}});
}

void Service::detokenize(const http::ServerRequest& request, http::ResponseWriter& out) {
  const auto body = parse_body(request);
  if (!body) return send_error(context_, out, body.error());
  const json::Value* tokens = body->find("tokens");
  if (tokens == nullptr || !tokens->is_array())
    return send_error(context_, out, {400, "tokens must be a list of token ids", "tokens", {}});
  std::vector<int32_t> ids;
  for (const json::Value& item : tokens->as_array()) {
    const auto id = parse_token_id(item, context_.vocab_size(), "tokens");
    if (!id) return send_error(context_, out, id.error());
    ids.push_back(*id);
  }
  send_json(context_, out, 200, json::Object{{"prompt", context_.tokenizer.decode(ids, false)}});
}

void Service::health(const http::ServerRequest&, http::ResponseWriter& out) {
  const EngineLoop::State state = context_.loop.state();
  const SchedulerCounters counters = context_.loop.counters();
  const int64_t now = monotonic_ns();
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns / 1'000'000) / 1e3; };
  const char* status = state == EngineLoop::State::kServing    ? "ok"
                       : state == EngineLoop::State::kDraining ? "draining"
                                                               : "failed";
  json::Value body =
      json::Object{{"status", status},
                   {"uptime_s", seconds(now - context_.started_ns)},
                   {"inflight", counters.running + counters.waiting},
                   {"oldest_s", counters.oldest_submitted_ns == 0 ? 0.0 : seconds(now - counters.oldest_submitted_ns)},
                   {"idle_s", counters.running + counters.waiting > 0 ? 0.0 : seconds(now - last_request_ns_.load())},
                   {"requests", context_.metrics.requests()},
                   {"errors", context_.metrics.errors()},
                   {"context_length", context_.max_model_len()}};
  if (state == EngineLoop::State::kFailed) body.set("error", context_.loop.failure().what);
  send_json(context_, out, state == EngineLoop::State::kServing ? 200 : 503, body);
}

void Service::metrics(const http::ServerRequest&, http::ResponseWriter& out) {
  const double uptime_s = static_cast<double>(monotonic_ns() - context_.started_ns) / 1e9;
  const std::string text =
      context_.metrics.text(context_.options.model_names.front(), context_.loop.counters(), context_.max_model_len(),
                            context_.loop.limits().max_sessions, uptime_s,
                            context_.loop.state() == EngineLoop::State::kFailed, context_.identity);
  context_.metrics.request(200);
  out.send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, text);
}

void Service::version(const http::ServerRequest&, http::ResponseWriter& out) {
  send_json(context_, out, 200,
            json::Object{{"version", context_.options.version}, {"identity", identity_object(context_.identity)}});
}

void Service::ping(const http::ServerRequest&, http::ResponseWriter& out) {
  context_.metrics.request(200);
  out.send(200, {{"Content-Type", "text/plain"}}, "pong\n");
}

}  // namespace dsf::serve
