#include "tests/unit/api/live_server.h"

using namespace dsf;
using namespace dsf::test;

namespace {

constexpr const char* kHello = R"("messages":[{"role":"user","content":"hi"}])";

struct Case {
  std::string body;
  int status;
  std::string message;  // has to occur in it
  std::string param = {};
};

void check(const LiveServer& live, const std::string& path, const Case& c) {
  CAPTURE(c.body);
  const auto response = live.post(path, c.body);
  CHECK_MESSAGE(response.status == c.status, response.body);
  const json::Value doc = parse(response.body);
  const json::Value message = at(doc, {"error", "message"});
  REQUIRE(message.is_string());
  CHECK_MESSAGE(message.as_string().find(c.message) != std::string::npos, message.as_string());
  CHECK(at(doc, {"error", "type"}).is_string());
  CHECK(at(doc, {"error"}).find("param") != nullptr);
  CHECK(at(doc, {"error"}).find("code") != nullptr);
  if (!c.param.empty()) CHECK(at(doc, {"error", "param"}) == json::Value(c.param));
}

std::string with(const std::string& extra) { return std::string("{") + kHello + "," + extra + "}"; }

}  // namespace

TEST_CASE("every wrong chat field is a 400 that names it") {
  const LiveServer live;
  const Case cases[] = {
      {"not json", 400, "the request body is not JSON"},
      {"[1]", 400, "the request body must be a JSON object"},
      {"\"\xff\"", 400, "the request body is not JSON"},
      {R"({"messages":"hi"})", 400, "messages must be a non-empty list", "messages"},
      {R"({"messages":[]})", 400, "messages must be a non-empty list", "messages"},
      {R"({"model":"dsf"})", 400, "messages must be a non-empty list", "messages"},
      {R"({"messages":[{"role":"alien","content":"x"}]})", 400, "role"},
      {with(R"("model":"other")"), 404, "The model other does not exist.", "model"},
      {with(R"("model":7)"), 400, "model must be a string", "model"},
      {with(R"("temperature":"hot")"), 400, "temperature must be a number", "temperature"},
      {with(R"("temperature":-0.1)"), 400, "temperature must be at least 0", "temperature"},
      {with(R"("temperature":true)"), 400, "temperature must be a number", "temperature"},
      {with(R"("top_p":0)"), 400, "top_p must be greater than 0", "top_p"},
      {with(R"("top_p":1.1)"), 400, "top_p must be", "top_p"},
      {with(R"("top_k":-2)"), 400, "top_k must be at least -1", "top_k"},
      {with(R"("min_p":2)"), 400, "min_p must be", "min_p"},
      {with(R"("seed":"x")"), 400, "seed must be an integer", "seed"},
      {with(R"("presence_penalty":3)"), 400, "presence_penalty must be", "presence_penalty"},
      {with(R"("repetition_penalty":0)"), 400, "repetition_penalty must be greater than 0", "repetition_penalty"},
      {with(R"("logit_bias":{"x":1})"), 400, "is not a token id", "logit_bias"},
      {with(R"("logit_bias":{"5000":1})"), 400, "token id 5000 is outside the vocabulary (0 to 913)", "logit_bias"},
      {with(R"("logit_bias":{"5":101})"), 400, "logit_bias.5 must be", "logit_bias.5"},
      {with(R"("max_tokens":0)"), 400, "max_tokens must be at least 1", "max_tokens"},
      {with(R"("max_tokens":1.5)"), 400, "max_tokens must be an integer", "max_tokens"},
      {with(R"("max_completion_tokens":"5")"), 400, "max_completion_tokens must be an integer",
       "max_completion_tokens"},
      {with(R"("stop":[1])"), 400, "stop must be a string or a list of strings", "stop"},
      {with(R"("stop_token_ids":[914])"), 400, "outside the vocabulary", "stop_token_ids"},
      {with(R"("n":0)"), 400, "n must be at least 1 (got 0)", "n"},
      {with(R"("n":65)"), 400, "n must be at most 64 (got 65)", "n"},
      {with(R"("stream":"yes")"), 400, "stream must be a boolean", "stream"},
      {with(R"("stream_options":{"include_usage":true})"), 400, "stream_options is only allowed when stream is true",
       "stream_options"},
      {with(R"("top_logprobs":3)"), 400, "top_logprobs is only allowed", "top_logprobs"},
      {with(R"("logprobs":true,"top_logprobs":21)"), 400, "top_logprobs must be at most 20", "top_logprobs"},
      {with(R"("tool_choice":"required")"), 400, "tool_choice"},
      {with(
           R"("tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":{"type":"function","function":{"name":"b"}})"),
       400, "b"},
      {with(R"("tools":[{"type":"function","function":{}}])"), 400, "name"},
      {with(R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])"),
       400, "a"},
      {with(R"("response_format":{"type":"xml"})"), 400, "response_format.type must be", "response_format.type"},
      {with(R"("response_format":{"type":"json_schema"})"), 400, "schema", "response_format.json_schema"},
      {with(R"("reasoning_effort":"huge")"), 400, "reasoning_effort"},
      {with(R"("reasoning_effort":101)"), 400, "reasoning_effort"},
      {with(R"("chat_template_kwargs":[])"), 400, "chat_template_kwargs"},
      {with(R"("chat_template":"x")"), 400, "chat_template", "chat_template"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]})", 400, "image"},
  };
  for (const Case& c : cases) check(live, "/v1/chat/completions", c);
}

TEST_CASE("every wrong completion field is a 400 that names it") {
  const LiveServer live;
  const Case cases[] = {
      {"{}", 400, "prompt must be", "prompt"},
      {R"({"prompt":7})", 400, "prompt must be", "prompt"},
      {R"({"prompt":[]})", 400, "prompt must not be empty", "prompt"},
      {R"({"prompt":""})", 400, "at least one token", "prompt"},
      {R"({"prompt":[1,914]})", 400, "token id 914 is outside the vocabulary (0 to 913)", "prompt"},
      {R"({"prompt":[1,-1]})", 400, "outside the vocabulary", "prompt"},
      {R"({"prompt":["a",5]})", 400, "prompt must be", "prompt"},
      {R"({"prompt":"a","suffix":"b"})", 400, "suffix", "suffix"},
      {R"({"prompt":"a","logprobs":21})", 400, "logprobs must be at most 20", "logprobs"},
      {R"({"prompt":"a","best_of":2})", 400, "best_of must be", "best_of"},
      {R"({"prompt":"<｜deepseek_image｜>"})", 400, "image token", "prompt"},
      {R"({"prompt":"a","model":"nope"})", 404, "The model nope does not exist.", "model"},
  };
  for (const Case& c : cases) check(live, "/v1/completions", c);
}

TEST_CASE("a request beyond the context says how many tokens it asked for") {
  Setup setup;
  setup.engine.max_model_len = 64;
  const LiveServer live(setup);
  const auto response = live.post("/v1/chat/completions", with(R"("max_tokens":100)"));
  CHECK(response.status == 400);
  const json::Value doc = parse(response.body);
  CHECK(at(doc, {"error", "code"}) == json::Value("context_length_exceeded"));
  CHECK(at(doc, {"error", "param"}) == json::Value("messages"));
  CHECK(at(doc, {"error", "type"}) == json::Value("invalid_request_error"));
  const std::string n = json::dump(at(parse(live.post("/tokenize", std::string("{") + kHello + "}").body), {"count"}));
  CHECK(at(doc, {"error", "message"})
            .as_string()
            .starts_with("This model's maximum context length is 64 tokens. However, you requested " +
                         std::to_string(100 + std::stoi(n)) + " tokens (" + n +
                         " in the messages, 100 in the completion)."));
  CHECK(live.post("/v1/completions", R"({"prompt":")" + std::string(400, 'a') + R"("})").status == 400);
  // Without a limit of its own a reply may fill the context.
  CHECK(at(parse(live.post("/v1/chat/completions", std::string("{") + kHello + "}").body),
           {"choices", 0, "finish_reason"}) == json::Value("stop"));
}

TEST_CASE("paths, methods, keys and the HTTP layer answer with the same error object") {
  Setup setup;
  setup.service.api_key = "secret-key";
  setup.http.max_body_bytes = 1000;
  const LiveServer live(setup);
  CHECK(live.send("GET", "/nope").status == 404);
  CHECK(at(parse(live.send("GET", "/nope").body), {"error", "type"}) == json::Value("invalid_request_error"));
  CHECK(live.send("POST", "/v1/embeddings").status == 404);
  const auto wrong = live.send("GET", "/v1/chat/completions");
  CHECK(wrong.status == 405);
  CHECK(http::find_header(wrong.headers, "Allow") == "POST");
  CHECK(live.send("POST", "/health").status == 405);
  CHECK(live.send("GET", "/v1/models").status == 401);
  CHECK(live.send("GET", "/v1/models", {}, {{"Authorization", "Bearer wrong"}}).status == 401);
  CHECK(live.send("GET", "/v1/models", {}, {{"Authorization", "Bearer secret-key"}}).status == 200);
  CHECK(live.send("GET", "/v1/models", {}, {{"x-api-key", "secret-key"}}).status == 200);
  CHECK(live.send("GET", "/health").status == 200);
  const auto large = live.post("/v1/chat/completions", std::string(2000, ' '));
  CHECK(large.status == 413);
  CHECK(at(parse(large.body), {"error", "message"}).is_string());
}

TEST_CASE("a failed engine is a 500 for what runs, a 503 for what comes, and a sick /health") {
  Setup setup;
  setup.engine.on_step = [](std::span<const serve::StepItem>) -> Result<void> {
    return fail(Code::kBug, "engine", "device lost");
  };
  const LiveServer live(setup);
  const auto first = live.post("/v1/chat/completions", std::string("{") + kHello + "}");
  CHECK(first.status == 500);
  CHECK(at(parse(first.body), {"error", "message"}).as_string().find("device lost") != std::string::npos);
  CHECK(eventually([&] { return live.send("GET", "/health").status == 503; }));
  CHECK(at(parse(live.send("GET", "/health").body), {"status"}) == json::Value("failed"));
  const auto second = live.post("/v1/chat/completions", std::string("{") + kHello + "}");
  CHECK(second.status == 503);
  CHECK_FALSE(http::find_header(second.headers, "Retry-After").empty());
}

TEST_CASE("an error in the middle of a stream is an event, and no [DONE] follows") {
  Setup setup;
  std::atomic<int> steps = 0;
  setup.engine.on_step = [&](std::span<const serve::StepItem>) -> Result<void> {
    if (++steps == 6) return fail(Code::kBug, "engine", "device lost");
    return {};
  };
  const LiveServer live(setup);
  const Events events = events_of(live.post("/v1/chat/completions", with(R"("stream":true)")).body);
  CHECK_FALSE(events.done);
  CHECK(at(events.items.back(), {"error", "message"}).is_string());
}
