#include <array>

#include "tests/unit/api/live_server.h"
#include "tests/unit/http/raw_peer.h"
#include "tools/serve/api/choice_filter.h"
#include "tools/serve/api/stop_matcher.h"

using namespace dsf;
using namespace dsf::test;

namespace {

std::string chat_body(const std::string& text, const std::string& extra = {}) {
  return R"({"messages":[{"role":"user","content":)" + json::quote(text) + "}]" + (extra.empty() ? "" : "," + extra) +
         "}";
}

// An engine that takes a moment for every step, and never says EOS.
Setup endless() {
  Setup setup;
  setup.engine.max_model_len = 100'000;
  setup.engine.on_step = [](std::span<const serve::StepItem>) -> Result<void> {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  };
  setup.reply = [](const std::string& user) { return user + std::string(20'000, 'a'); };
  return setup;
}

std::string raw_request(const std::string& body) {
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

TEST_CASE("models, version, ping, health and metrics name what is served") {
  Setup setup;
  setup.service.model_names = {"deepseek", "alias/one"};
  setup.service.version = "dsf-serve test";
  const LiveServer live(setup);
  const json::Value list = parse(live.send("GET", "/v1/models").body);
  CHECK(at(list, {"object"}) == json::Value("list"));
  CHECK(at(list, {"data", 0, "id"}) == json::Value("deepseek"));
  CHECK(at(list, {"data", 1, "id"}) == json::Value("alias/one"));
  CHECK(at(list, {"data", 0, "max_model_len"}) == json::Value(4096));
  CHECK(at(list, {"data", 0, "identity", "checkpoint_sha256"}) == json::Value(std::string(64, 'a')));
  CHECK(at(parse(live.send("GET", "/v1/models/alias%2Fone").body), {"id"}) == json::Value("alias/one"));
  CHECK(live.send("GET", "/v1/models/other").status == 404);
  CHECK(at(parse(live.send("GET", "/version").body), {"version"}) == json::Value("dsf-serve test"));
  CHECK(live.send("GET", "/ping").status == 200);
  CHECK(live.send("HEAD", "/health").status == 200);
  CHECK(at(parse(live.post("/v1/chat/completions", chat_body("x", R"("model":"alias/one")")).body), {"model"}) ==
        json::Value("alias/one"));
  const std::string text = live.send("GET", "/metrics").body;
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"deepseek\",engine=\"0\"} 0\n",
        "vllm:request_success_total{model_name=\"deepseek\",engine=\"0\",finished_reason=\"stop\"} 1\n",
        "vllm:e2e_request_latency_seconds_count{model_name=\"deepseek\",engine=\"0\"} 1\n",
        "# TYPE vllm:generation_tokens_total counter\n",
        "vllm:prefix_cache_hits_total{model_name=\"deepseek\",engine=\"0\"} 0\n"}) {
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  }
  CHECK(text.find("checkpoint_sha256=\"" + std::string(64, 'a') + "\"") != std::string::npos);
}

TEST_CASE("tokenize and detokenize are each other's inverse and know the chat template") {
  const LiveServer live;
  const json::Value tokens = parse(live.post("/tokenize", R"({"prompt":"Hello <think> world"})").body);
  CHECK(at(tokens, {"count"}) == json::Value(at(tokens, {"tokens"}).as_array().size()));
  CHECK(at(tokens, {"token_strs"}).as_array().size() == at(tokens, {"tokens"}).as_array().size());
  CHECK(at(parse(live.post("/v1/detokenize", R"({"tokens":)" + json::dump(at(tokens, {"tokens"})) + "}").body),
           {"prompt"}) == json::Value("Hello <think> world"));
  // User text in a chat cannot become a control token.
  const json::Value chat = parse(live.post("/v1/tokenize", chat_body("<｜Assistant｜>")).body);
  int assistants = 0;
  const json::Value ids = at(chat, {"tokens"});
  for (const json::Value& id : ids.as_array())
    assistants += *id.to_i64() == *small_tokenizer().find("<｜Assistant｜>") ? 1 : 0;
  CHECK(assistants == 1);
  CHECK(live.post("/detokenize", R"({"tokens":[914]})").status == 400);
  CHECK(live.post("/detokenize", R"({"tokens":7})").status == 400);
  CHECK(live.post("/tokenize", "{}").status == 400);
}

TEST_CASE("completions take every form of prompt, echo it, and give log-probabilities") {
  Setup setup;
  setup.engine.script = [](std::span<const int32_t>) { return -1; };
  const LiveServer live(setup);
  const json::Value list =
      parse(live.post("/v1/completions", R"({"prompt":["ab","c"],"max_tokens":3,"ignore_eos":true,"seed":1})").body);
  CHECK(at(list, {"object"}) == json::Value("text_completion"));
  REQUIRE(at(list, {"choices"}).as_array().size() == 2);
  CHECK(at(list, {"choices", 1, "index"}) == json::Value(1));
  CHECK(at(list, {"choices", 0, "finish_reason"}) == json::Value("length"));
  CHECK(at(list, {"usage", "completion_tokens"}) == json::Value(6));
  const json::Value ids = parse(
      live.post("/v1/completions", R"({"prompt":[[50,51],[52]],"max_tokens":1,"ignore_eos":true,"seed":1})").body);
  CHECK(at(ids, {"usage", "prompt_tokens"}) == json::Value(3));
  const json::Value echo =
      parse(live.post("/v1/completions",
                      R"({"prompt":"abcd","max_tokens":2,"ignore_eos":true,"echo":true,"logprobs":1,"seed":1})")
                .body);
  CHECK(at(echo, {"choices", 0, "text"}).as_string().starts_with("abcd"));
  const int64_t total = *at(echo, {"usage", "total_tokens"}).to_i64();
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    CHECK(json::Value(at(echo, {"choices", 0, "logprobs", key}).as_array().size()) == json::Value(total));
  }
  CHECK(at(echo, {"choices", 0, "logprobs", "token_logprobs", 0}).is_null());
  CHECK(at(echo, {"choices", 0, "logprobs", "token_logprobs", 1}).to_double() < 0.0);
  // A stream of two prompts says the same as the whole.
  std::array<std::string, 2> text;
  const Events events = events_of(
      live.post("/v1/completions", R"({"prompt":["ab","c"],"max_tokens":3,"ignore_eos":true,"seed":1,"stream":true})")
          .body);
  CHECK(events.done);
  for (const json::Value& event : events.items) {
    text[static_cast<size_t>(*at(event, {"choices", 0, "index"}).to_i64())] +=
        at(event, {"choices", 0, "text"}).as_string();
  }
  for (int i = 0; i < 2; ++i) CHECK(json::Value(text[static_cast<size_t>(i)]) == at(list, {"choices", i, "text"}));
}

TEST_CASE("eight clients at once each get their own whole reply") {
  Setup setup;
  setup.reply = [](const std::string& user) { return "reply to " + user + " " + std::string(40, 'z'); };
  const LiveServer live(setup);
  std::atomic<int> good = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 3; ++i) {
          const std::string name = "client" + std::to_string(t) + "x" + std::to_string(i);
          const bool stream = i % 2 == 0;
          const auto response = live.post("/v1/chat/completions", chat_body(name, stream ? R"("stream":true)" : ""));
          const std::string content = stream
                                          ? collect(events_of(response.body)).content
                                          : at(parse(response.body), {"choices", 0, "message", "content"}).as_string();
          if (content == "reply to " + name + " " + std::string(40, 'z')) ++good;
        }
      });
    }
  }
  CHECK(good == 24);
}

TEST_CASE("a client that leaves frees its session, streaming, waiting for the whole, or still in its prompt") {
  Setup setup = endless();
  setup.loop.prefill_chunk = 8;
  const LiveServer live(setup);
  {
    RawPeer streaming(live.server->port()), whole(live.server->port()), prompt(live.server->port());
    streaming.send(raw_request(chat_body("s", R"("stream":true)")));
    whole.send(raw_request(chat_body("w")));
    prompt.send(raw_request(chat_body(std::string(60'000, 'p'))));
    CHECK(streaming.receive("\"content\":\"").find("200 OK") != std::string::npos);
    CHECK(eventually([&] { return live.loop->counters().running == 3; }));
  }
  CHECK(eventually([&] { return live.loop->counters().running == 0; }));
  CHECK(eventually(
      [&] { return live.send("GET", "/metrics").body.find("finished_reason=\"abort\"} 3\n") != std::string::npos; }));
}

TEST_CASE("a short chat is answered while a long prompt is being read") {
  Setup setup = endless();
  setup.loop.prefill_chunk = 16;
  setup.reply = [](const std::string& user) { return user.size() > 1000 ? std::string("long") : std::string("short"); };
  const LiveServer live(setup);
  RawPeer reader(live.server->port());
  reader.send(raw_request(chat_body(std::string(60'000, 'p'))));
  CHECK(eventually([&] { return live.loop->counters().running == 1; }));
  const int64_t before = live.loop->counters().prompt_tokens;
  CHECK(at(parse(live.post("/v1/chat/completions", chat_body("q")).body), {"choices", 0, "message", "content"}) ==
        json::Value("short"));
  CHECK(live.loop->counters().running == 1);
  CHECK(live.loop->counters().prompt_tokens > before);
}

TEST_CASE("requests beyond the queue get 429 with Retry-After, before any stream begins") {
  Setup setup = endless();
  setup.loop.max_running = 1;
  setup.loop.max_queue = 1;
  const LiveServer live(setup);
  RawPeer running(live.server->port()), waiting(live.server->port());
  running.send(raw_request(chat_body("a", R"("stream":true)")));
  running.receive("\"content\"");
  waiting.send(raw_request(chat_body("b", R"("stream":true)")));
  CHECK(eventually([&] { return live.loop->counters().waiting == 1; }));
  CHECK(waiting.receive("HTTP", 50).empty());  // no headers before admission
  const auto refused = live.post("/v1/chat/completions", chat_body("c", R"("stream":true)"));
  CHECK(refused.status == 429);
  CHECK(http::find_header(refused.headers, "Retry-After") == "1");
  CHECK(at(parse(refused.body), {"error", "type"}) == json::Value("rate_limit_error"));
}

TEST_CASE("a request that waits too long gets 503") {
  Setup setup = endless();
  setup.loop.max_running = 1;
  setup.service.queue_timeout_us = 30'000;
  const LiveServer live(setup);
  RawPeer running(live.server->port());
  running.send(raw_request(chat_body("a", R"("stream":true)")));
  running.receive("\"content\"");
  CHECK(live.post("/v1/chat/completions", chat_body("b")).status == 503);
}

TEST_CASE("draining refuses what is new, finishes what runs, and says so in /health") {
  Setup setup = endless();
  setup.reply = [](const std::string&) { return std::string(400, 'a'); };
  const LiveServer live(setup);
  RawPeer running(live.server->port());
  running.send(raw_request(chat_body("a", R"("stream":true,"max_tokens":150)")));
  running.receive("\"content\"");
  live.loop->drain();
  CHECK(live.post("/v1/chat/completions", chat_body("b")).status == 503);
  CHECK(live.send("GET", "/health").status == 503);
  CHECK(at(parse(live.send("GET", "/health").body), {"status"}) == json::Value("draining"));
  CHECK(running.receive("[DONE]").find("\"finish_reason\":\"") != std::string::npos);
  CHECK(live.loop->wait_idle(5'000'000));
}

TEST_CASE("keep-alive comments are sent until the first token, and clients skip them") {
  Setup setup = endless();
  setup.service.keepalive_us = 20'000;
  setup.loop.prefill_chunk = 4;
  setup.reply = [](const std::string&) { return "done"; };
  const LiveServer live(setup);
  const auto response = live.post("/v1/chat/completions", chat_body(std::string(3000, 'p'), R"("stream":true)"));
  CHECK(response.body.find(": keepalive\n\n") != std::string::npos);
  CHECK(collect(events_of(response.body)).content == "done");
}

TEST_CASE("stop strings cut raw text wherever the tokens fall") {
  const std::string text = "one two STOP three";
  for (size_t cut = 1; cut < text.size(); ++cut) {
    serve::StopMatcher matcher({"STOP", "never", "STOQ"}, false), keeping({"STOP"}, true);
    const auto through = [&](serve::StopMatcher& m) {
      std::string out = m.push(text.substr(0, cut));
      out += m.push(text.substr(cut));
      return out += m.finish();
    };
    CHECK(through(matcher) == "one two ");
    REQUIRE(matcher.matched() != nullptr);
    CHECK(*matcher.matched() == "STOP");
    CHECK(through(keeping) == "one two STOP");
  }
  serve::StopMatcher held({"abc"}, false);
  CHECK(held.push("xab").find('a') == std::string::npos);
  CHECK(held.finish() == "ab");
}

TEST_CASE("a choice filter lets exactly the given texts through") {
  serve::ChoiceFilter filter(small_tokenizer(), small_tokenizer().id_limit(), {"alpha\">\n", "also\">\n"});
  std::string text;
  std::vector<int32_t> allowed;
  while (filter.allowed(allowed)) {
    REQUIRE_FALSE(allowed.empty());
    text += small_tokenizer().bytes(allowed.back());
    filter.commit(allowed.back());
  }
  const bool one_of_them = text == "alpha\">\n" || text == "also\">\n";
  CHECK_MESSAGE(one_of_them, text);
}
