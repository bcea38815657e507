#include <array>

#include "tests/unit/api/live_server.h"

using namespace dsf;
using namespace dsf::test;

namespace {

constexpr std::string_view kTool =
    R"({"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}})";
constexpr std::string_view kOtherTool =
    R"({"type":"function","function":{"name":"get_time","parameters":{"type":"object","properties":{}}}})";

std::string chat_body(const std::string& text, const std::string& extra = {}) {
  return R"({"model":"dsf","messages":[{"role":"user","content":)" + json::quote(text) + "}]" +
         (extra.empty() ? "" : "," + extra) + "}";
}

constexpr std::string_view kCall =
    "Let me look.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" "
    "string=\"true\">Oslo</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

}  // namespace

TEST_CASE("a chat reply has the documented shape") {
  const LiveServer live;
  const auto response = live.post("/v1/chat/completions", chat_body("hello"));
  CHECK(response.status == 200);
  CHECK(http::find_header(response.headers, "Content-Type") == "application/json");
  const json::Value doc = parse(response.body);
  CHECK(at(doc, {"id"}).as_string().starts_with("chatcmpl-"));
  CHECK(at(doc, {"object"}) == json::Value("chat.completion"));
  CHECK(at(doc, {"model"}) == json::Value("dsf"));
  CHECK(at(doc, {"choices", 0, "message", "role"}) == json::Value("assistant"));
  CHECK(at(doc, {"choices", 0, "message", "content"}) == json::Value("You said: hello"));
  CHECK(at(doc, {"choices", 0, "message", "reasoning_content"}).is_null());
  CHECK(doc.find("choices")->as_array()[0].find("message")->find("tool_calls") == nullptr);
  CHECK(at(doc, {"choices", 0, "finish_reason"}) == json::Value("stop"));
  const auto said = small_tokenizer().encode("You said: hello", tokenizer::Specials::kOff).size();
  CHECK(at(doc, {"usage", "completion_tokens"}) == json::Value(said + 1));  // EOS counts
  const json::Value tokens = parse(live.post("/tokenize", chat_body("hello")).body);
  CHECK(at(doc, {"usage", "prompt_tokens"}) == at(tokens, {"count"}));
  CHECK(at(doc, {"usage", "completion_tokens_details", "reasoning_tokens"}) == json::Value(0));
  CHECK(at(doc, {"usage", "prompt_tokens_details", "cached_tokens"}) == json::Value(0));
  CHECK(at(doc, {"system_fingerprint"}) == json::Value("dsf_aaaaaaaaaaaa"));
}

TEST_CASE("a stream says what the whole reply says") {
  Setup setup;
  setup.reply = [](const std::string& user) -> std::string {
    if (user == "call") return std::string(kCall);
    if (user == "think") return "Hmm, let me see.\n</think>\n\nThe answer is 4 \xf0\x9f\x98\x80 and more.";
    if (user == "open") return "I never stop thinking";
    return "plain text \xe2\x82\xac 5";
  };
  const LiveServer live(setup);
  const std::string tools = R"("tools":[)" + std::string(kTool) + "]";
  const struct {
    std::string user, extra;
  } cases[] = {{"call", tools},
               {"call", R"("tool_choice":"none",)" + tools},
               {"call", R"("max_tokens":40,)" + tools},
               {"think", R"("reasoning_effort":"low")"},
               {"think", R"("reasoning_effort":"low","include_reasoning":false)"},
               {"open", R"("reasoning_effort":50)"},
               {"plain", R"("max_tokens":3)"},
               {"plain", R"("stop":["xt"])"},
               {"plain", R"("stop":["t \u20ac"],"include_stop_str_in_output":true)"}};
  for (const auto& c : cases) {
    CAPTURE(c.user);
    CAPTURE(c.extra);
    const auto whole = live.post("/v1/chat/completions", chat_body(c.user, c.extra));
    REQUIRE_MESSAGE(whole.status == 200, whole.body);
    const json::Value doc = parse(whole.body);
    const auto streamed =
        live.post("/v1/chat/completions",
                  chat_body(c.user, c.extra + R"(,"stream":true,"stream_options":{"include_usage":true})"));
    CHECK(http::find_header(streamed.headers, "Content-Type") == "text/event-stream");
    const Events events = events_of(streamed.body);
    CHECK(events.done);
    const Collected got = collect(events);
    const auto text = [&](const char* key) {
      const json::Value v = at(doc, {"choices", 0, "message", key});
      return v.is_string() ? v.as_string() : std::string();
    };
    CHECK(got.content == text("content"));
    CHECK(got.reasoning == text("reasoning_content"));
    CHECK(json::Value(got.finish) == at(doc, {"choices", 0, "finish_reason"}));
    CHECK(got.usage == at(doc, {"usage"}));
    const json::Value calls = at(doc, {"choices", 0, "message", "tool_calls"});
    if (calls.is_array()) {
      REQUIRE(calls.as_array().size() == got.calls.size());
      for (int i = 0; i < static_cast<int>(got.calls.size()); ++i) {
        CHECK(at(calls, {i, "function", "name"}) == json::Value(got.calls[static_cast<size_t>(i)].first));
        CHECK(at(calls, {i, "function", "arguments"}) == json::Value(got.calls[static_cast<size_t>(i)].second));
      }
    }
  }
}

TEST_CASE("the chunks of a stream come in the documented order") {
  Setup setup;
  setup.reply = [](const std::string&) { return "why</think>because"; };
  const LiveServer live(setup);
  const auto response =
      live.post("/v1/chat/completions",
                chat_body("x", R"("reasoning_effort":"high","stream":true,"stream_options":{"include_usage":true})"));
  const Events events = events_of(response.body);
  REQUIRE(events.items.size() >= 5);
  CHECK(at(events.items.front(), {"choices", 0, "delta", "role"}) == json::Value("assistant"));
  const json::Value& last = events.items.back();
  CHECK(at(last, {"choices"}).as_array().empty());
  CHECK(at(last, {"usage", "total_tokens"}).is_integer());
  CHECK(at(last, {"usage", "completion_tokens_details", "reasoning_tokens"}).to_i64() > 0);
  const json::Value& final = events.items[events.items.size() - 2];
  CHECK(at(final, {"choices", 0, "delta"}) == json::Value::object());
  CHECK(at(final, {"choices", 0, "finish_reason"}) == json::Value("stop"));
  bool content = false;
  for (size_t i = 0; i + 1 < events.items.size(); ++i) {
    const json::Value& event = events.items[i];
    CHECK(at(event, {"id"}) == at(last, {"id"}));
    CHECK(event.find("usage") != nullptr);
    CHECK(at(event, {"usage"}).is_null());
    CHECK(at(event, {"object"}) == json::Value("chat.completion.chunk"));
    const json::Value delta = at(event, {"choices", 0, "delta"});
    if (i > 0 && delta.find("content") != nullptr) content = true;
    if (delta.find("reasoning_content") != nullptr) {
      CHECK_FALSE(content);
      CHECK(*delta.find("reasoning") == *delta.find("reasoning_content"));
    }
  }
}

TEST_CASE("continuous usage and token ids let a client weigh every chunk") {
  const LiveServer live;
  const auto response = live.post(
      "/v1/chat/completions",
      chat_body(
          "abc",
          R"("stream":true,"return_token_ids":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  const Events events = events_of(response.body);
  size_t ids = 0;
  int64_t before = 0;
  for (const json::Value& event : events.items) {
    const auto so_far = at(event, {"usage", "completion_tokens"}).to_i64();
    REQUIRE(so_far);
    CHECK(*so_far >= before);
    before = *so_far;
    const json::Value list = at(event, {"choices", 0, "token_ids"});
    if (list.is_array()) ids += list.as_array().size();
  }
  CHECK(static_cast<int64_t>(ids) == before);
}

// Text that the decoder or a stop string held back comes with the last token: a client may take every chunk for a token
// or more.
TEST_CASE("a stream has no more visible chunks than tokens, wherever the length cuts it") {
  const LiveServer live(babble());
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    for (int n = 1; n <= 24; ++n) {
      const std::string more =
          R"("stream":true,"temperature":0,"ignore_eos":true,"stop":["zzzz"],"stream_options":{"include_usage":true},"max_tokens":)" +
          std::to_string(n);
      const bool chat = std::string(path).find("chat") != std::string::npos;
      const auto response =
          live.post(path, chat ? chat_body("cut " + std::to_string(n), more)
                               : R"({"model":"dsf","prompt":"cut )" + std::to_string(n) + R"(",)" + more + "}");
      REQUIRE_MESSAGE(response.status == 200, response.body);
      int64_t visible = 0;
      const Events events = events_of(response.body);
      for (const json::Value& event : events.items) {
        if (at(event, {"choices"}).as_array().empty()) continue;
        const json::Value choice = at(event, {"choices", 0});
        const auto has_text = [](const json::Value& v) { return v.is_string() && !v.as_string().empty(); };
        if (has_text(at(choice, {"text"})) || has_text(at(choice, {"delta", "content"})) ||
            has_text(at(choice, {"delta", "reasoning_content"})))
          ++visible;
      }
      CAPTURE(n);
      CHECK(at(events.items.back(), {"usage", "completion_tokens"}).to_i64() == n);
      CHECK(visible <= n);
    }
  }
}

TEST_CASE("tool calls are parsed, streamed in fragments and finish as tool_calls") {
  Setup setup;
  setup.reply = [](const std::string&) { return std::string(kCall); };
  const LiveServer live(setup);
  const json::Value doc =
      parse(live.post("/v1/chat/completions", chat_body("w", R"("tools":[)" + std::string(kTool) + "]")).body);
  CHECK(at(doc, {"choices", 0, "message", "content"}) == json::Value("Let me look."));
  CHECK(at(doc, {"choices", 0, "message", "tool_calls", 0, "id"}).as_string().size() == 29);
  CHECK(at(doc, {"choices", 0, "message", "tool_calls", 0, "function", "arguments"}) ==
        json::Value(R"({"city": "Oslo", "days": 3})"));
  CHECK(at(doc, {"choices", 0, "finish_reason"}) == json::Value("tool_calls"));
}

TEST_CASE("a required or named choice forces the opening of a call, after the thinking") {
  Setup setup;
  // What the model would say on its own is text; after the forced opening it says it as the rest of a call.
  setup.reply = [](const std::string& user) {
    return user == "think" ? "mull it over</think>nothing else" : std::string(40, 'x');
  };
  const LiveServer live(setup);
  const std::string tools = R"("max_tokens":80,"tools":[)" + std::string(kTool) + "," + std::string(kOtherTool) + "],";
  const auto name_of = [&](const std::string& user, const std::string& choice) {
    const auto response = live.post("/v1/chat/completions", chat_body(user, tools + choice + R"(,"stream":true)"));
    REQUIRE_MESSAGE(response.status == 200, response.body);
    const Collected got = collect(events_of(response.body));
    return got.calls.empty() ? std::string("none: ") + got.content : got.calls[0].first;
  };
  CHECK(name_of("x", R"("tool_choice":{"type":"function","function":{"name":"get_time"}})") == "get_time");
  const std::string required = name_of("x", R"("tool_choice":"required")");
  const bool declared = required == "get_time" || required == "get_weather";
  CHECK_MESSAGE(declared, required);
  const auto response =
      live.post("/v1/chat/completions",
                chat_body("think", tools + R"("reasoning_effort":10,"tool_choice":"required","stream":true)"));
  const Collected got = collect(events_of(response.body));
  CHECK(got.reasoning == "mull it over");
  CHECK(got.calls.size() >= 1);
}

TEST_CASE("logprobs are given for every token, streamed or not") {
  const LiveServer live;
  const std::string extra = R"("logprobs":true,"top_logprobs":2)";
  const json::Value doc = parse(live.post("/v1/chat/completions", chat_body("hi", extra)).body);
  const json::Value content = at(doc, {"choices", 0, "logprobs", "content"});
  REQUIRE(content.is_array());
  CHECK(json::Value(content.as_array().size()) == at(doc, {"usage", "completion_tokens"}));
  CHECK(at(content, {0, "top_logprobs"}).as_array().size() == 2);
  CHECK(at(content, {0, "logprob"}).to_double() <= 0.0);
  size_t streamed = 0;
  for (const json::Value& event :
       events_of(live.post("/v1/chat/completions", chat_body("hi", extra + R"(,"stream":true)")).body).items) {
    const json::Value list = at(event, {"choices", 0, "logprobs", "content"});
    if (list.is_array()) streamed += list.as_array().size();
  }
  CHECK(streamed == content.as_array().size());
  CHECK(at(parse(live.post("/v1/chat/completions", chat_body("hi")).body), {"choices", 0, "logprobs"}).is_null());
}

TEST_CASE("a continued message goes on where it stopped") {
  Setup setup;
  setup.reply = [](const std::string&) { return "unused"; };
  const LiveServer live(setup);
  const std::string messages =
      R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":"The answer is "}])";
  const json::Value tokens = parse(live.post("/tokenize", "{" + messages + R"(,"continue_final_message":true})").body);
  std::string text;
  const json::Value ids = at(tokens, {"tokens"});
  for (const json::Value& s : ids.as_array()) text += small_tokenizer().bytes(static_cast<int32_t>(*s.to_i64()));
  CHECK(text.ends_with("</think>The answer is "));
  CHECK(
      live.post("/v1/chat/completions", "{" + messages + R"(,"continue_final_message":true,"max_tokens":2})").status ==
      200);
  CHECK(live.post("/v1/chat/completions",
                  "{" + messages + R"(,"continue_final_message":true,"add_generation_prompt":true})")
            .status == 400);
  CHECK(live.post("/v1/chat/completions", chat_body("q", R"("continue_final_message":true)")).status == 400);
}

TEST_CASE("the same seed gives the same reply, another seed another one, and no seed varies") {
  Setup setup;
  setup.engine.script = [](std::span<const int32_t>) { return -1; };
  const LiveServer live(setup);
  const auto text = [&](const std::string& extra) {
    return json::dump(
        at(parse(live.post("/v1/completions",
                           R"({"prompt":"abc","max_tokens":20,"ignore_eos":true,"return_token_ids":true)" + extra + "}")
                     .body),
           {"choices", 0, "token_ids"}));
  };
  CHECK(text(R"(,"seed":7)") == text(R"(,"seed":7)"));
  CHECK(text(R"(,"seed":7)") != text(R"(,"seed":8)"));
  CHECK(text("") != text(""));
  CHECK(text(R"(,"temperature":0)") == text(R"(,"temperature":0,"seed":9)"));
}
