#pragma once
// A whole server over loopback with an engine that speaks from a script: the reply is a function of the last user
// message.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/http/client.h"
#include "dsf/http/server.h"
#include "dsf/test/support.h"
#include "tests/unit/scheduler/fake_engine.h"
#include "tools/serve/api/service.h"

namespace dsf::test {

inline const tokenizer::Tokenizer& small_tokenizer() {
  static const auto tok = tokenizer::Tokenizer::load(golden() / "tokenizer/mini_tokenizer.json");
  REQUIRE(tok.has_value());
  return *tok;
}

struct Setup {
  serve::ServiceOptions service;
  serve::EngineLoopOptions loop;
  FakeEngine::Options engine;
  http::ServerOptions http;
  // Text of the reply, control tokens spelled out. The model says EOS after it.
  std::function<std::string(const std::string& user)> reply = [](const std::string& user) {
    return "You said: " + user;
  };
};

// A model that says anything: its logits are a hash of the context.
inline Setup babble() {
  Setup setup;
  setup.engine.script = [](std::span<const int32_t>) { return -1; };
  return setup;
}

class LiveServer {
 public:
  explicit LiveServer(Setup setup = {}) : reply_(setup.reply), ids_(*tokenizer::ControlIds::find(small_tokenizer())) {
    setup.engine.vocab_size = small_tokenizer().id_limit();
    if (setup.engine.max_model_len == 256) setup.engine.max_model_len = 4096;
    setup.engine.eos = ids_[tokenizer::Control::kEos];
    if (!setup.engine.script) setup.engine.script = [this](std::span<const int32_t> context) { return next(context); };
    loop = std::make_unique<serve::EngineLoop>(std::make_unique<FakeEngine>(setup.engine), setup.loop);
    setup.service.thinking.on = setup.service.thinking.effort != 75;  // tests say so when they want it
    service = std::make_unique<serve::Service>(*loop, small_tokenizer(), ids_, setup.service);
    setup.http.error_body = serve::Service::error_body;
    auto listening = http::Server::listen(
        setup.http,
        [this](const http::ServerRequest& request, http::ResponseWriter& out) { service->handle(request, out); });
    REQUIRE(listening.has_value());
    server = std::move(*listening);
  }
  ~LiveServer() {
    loop->stop();
    server->stop();
  }

  http::Response send(const std::string& method, const std::string& path, const std::string& body = {},
                      http::Headers headers = {}) const {
    http::Client client;
    http::Request request;
    request.method = method;
    request.url = server->base_url() + path;
    request.headers = std::move(headers);
    request.body = body;
    auto response = client.perform(request);
    REQUIRE_MESSAGE(response.has_value(), (response ? "" : response.error().line()));
    return *response;
  }
  http::Response post(const std::string& path, const std::string& body) const { return send("POST", path, body); }

  std::unique_ptr<serve::EngineLoop> loop;
  std::unique_ptr<serve::Service> service;
  std::unique_ptr<http::Server> server;

 private:
  // Index of the last occurrence of id, or -1.
  static std::ptrdiff_t last(std::span<const int32_t> context, int32_t id) {
    for (auto i = static_cast<std::ptrdiff_t>(context.size()) - 1; i >= 0; --i) {
      if (context[static_cast<size_t>(i)] == id) return i;
    }
    return -1;
  }
  int32_t next(std::span<const int32_t> context) const {
    const std::ptrdiff_t user = last(context, ids_[tokenizer::Control::kUser]),
                         assistant = last(context, ids_[tokenizer::Control::kAssistant]);
    if (user < 0 || assistant < user) return -1;
    const auto text = small_tokenizer().decode(
        context.subspan(static_cast<size_t>(user) + 1, static_cast<size_t>(assistant - user) - 1), false);
    const auto reply = small_tokenizer().encode(reply_(text), tokenizer::Specials::kParse);
    const auto said = context.size() - static_cast<size_t>(assistant) - 2;
    return said < reply.size() ? reply[said] : ids_[tokenizer::Control::kEos];
  }

  std::function<std::string(const std::string&)> reply_;
  tokenizer::ControlIds ids_;
};

inline json::Value parse(const std::string& text) {
  auto value = json::parse(text, "response");
  REQUIRE_MESSAGE(value.has_value(), text);
  return *value;
}

// doc["a"][0]["b"] without ceremony; a null Value when a step is missing.
inline json::Value at(const json::Value& doc, std::initializer_list<std::variant<const char*, int>> path) {
  const json::Value* v = &doc;
  for (const auto& step : path) {
    if (const auto* key = std::get_if<const char*>(&step)) {
      v = v->find(*key);
    } else {
      const auto i = static_cast<size_t>(std::get<int>(step));
      v = v->is_array() && i < v->as_array().size() ? &v->as_array()[i] : nullptr;
    }
    if (v == nullptr) return {};
  }
  return *v;
}

// The JSON events of a stream; done says whether "[DONE]" came last.
struct Events {
  std::vector<json::Value> items;
  bool done = false;
};
inline Events events_of(const std::string& body) {
  Events out;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    REQUIRE(end != std::string::npos);
    const std::string line = body.substr(begin, end - begin);
    begin = end + 2;
    if (line.starts_with(":")) continue;
    REQUIRE(line.starts_with("data: "));
    CHECK_FALSE(out.done);
    if (line == "data: [DONE]") {
      out.done = true;
    } else {
      out.items.push_back(parse(line.substr(6)));
    }
  }
  return out;
}

// What a client puts together from the deltas of a chat stream.
struct Collected {
  std::string reasoning, content, finish;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  json::Value usage;
};
inline Collected collect(const Events& events) {
  Collected out;
  const auto add = [](std::string& to, const json::Value& v) {
    if (v.is_string()) to += v.as_string();
  };
  for (const json::Value& event : events.items) {
    const json::Value delta = at(event, {"choices", 0, "delta"});
    CHECK_FALSE((delta.find("content") != nullptr && delta.find("reasoning_content") != nullptr));
    add(out.reasoning, at(delta, {"reasoning_content"}));
    add(out.content, at(delta, {"content"}));
    add(out.finish, at(event, {"choices", 0, "finish_reason"}));
    if (const json::Value call = at(delta, {"tool_calls", 0}); call.is_object()) {
      const auto index = static_cast<size_t>(*at(call, {"index"}).to_i64());
      if (index >= out.calls.size()) out.calls.resize(index + 1);
      add(out.calls[index].first, at(call, {"function", "name"}));
      add(out.calls[index].second, at(call, {"function", "arguments"}));
    }
    if (const json::Value usage = at(event, {"usage"}); usage.is_object()) out.usage = usage;
  }
  return out;
}

inline bool eventually(const std::function<bool()>& condition, int timeout_ms = 5000) {
  const int64_t end = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
  while (!condition()) {
    if (monotonic_ns() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace dsf::test
