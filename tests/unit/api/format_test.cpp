// Replies held to a format: what is refused, what the prompt says, and that every whole reply is valid.
#include <set>

#include "tests/unit/api/live_server.h"
#include "tests/unit/grammar/valid.h"

using namespace dsf;
using namespace dsf::test;

namespace {

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age"],"additionalProperties":false})";

std::string schema_format(const std::string& schema = kSchema) {
  return R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + schema + "}}";
}
std::string body(const std::string& extra, const std::string& user = "hi") {
  return R"({"messages":[{"role":"user","content":)" + json::quote(user) + "}]," + extra + "}";
}
std::string content(const json::Value& doc, int choice = 0) {
  const json::Value text = at(doc, {"choices", choice, "message", "content"});
  return text.is_string() ? text.as_string() : "";
}

}  // namespace

TEST_CASE("whatever the model wants to say, a whole reply is valid under its schema, streamed or not") {
  const LiveServer live(babble());
  const json::Value schema = parse(kSchema);
  std::set<std::string> seen;
  for (int seed = 0; seed < 30; ++seed) {
    const std::string extra = schema_format() + R"(,"max_tokens":600,"seed":)" + std::to_string(seed);
    const json::Value doc = parse(live.post("/v1/chat/completions", body(extra)).body);
    REQUIRE(at(doc, {"choices", 0, "finish_reason"}) == json::Value("stop"));
    const auto value = json::parse(content(doc), "reply");
    REQUIRE_MESSAGE(value.has_value(), content(doc));
    CHECK_MESSAGE(valid(*value, schema, schema), content(doc));
    seen.insert(content(doc));
    const Events events = events_of(live.post("/v1/chat/completions", body(extra + R"(,"stream":true)")).body);
    CHECK(collect(events).content == content(doc));
  }
  CHECK(seen.size() > 20);
}

TEST_CASE("json_object replies are objects, and a reply that max_tokens cuts says so") {
  const LiveServer live(babble());
  int whole = 0;
  for (int seed = 0; seed < 20; ++seed) {
    const json::Value doc = parse(
        live.post("/v1/chat/completions",
                  body(R"("response_format":{"type":"json_object"},"max_tokens":300,"seed":)" + std::to_string(seed)))
            .body);
    if (at(doc, {"choices", 0, "finish_reason"}) == json::Value("length")) continue;
    ++whole;
    json::ParseOptions options;
    options.reject_duplicate_keys = false;
    const auto value = json::parse(content(doc), "reply", options);
    REQUIRE_MESSAGE(value.has_value(), content(doc));
    CHECK(value->is_object());
  }
  CHECK(whole > 0);
  const json::Value cut = parse(
      live.post("/v1/chat/completions", body(R"("response_format":{"type":"json_object"},"max_tokens":1,"seed":1)"))
          .body);
  CHECK(at(cut, {"choices", 0, "finish_reason"}) == json::Value("length"));
  CHECK(content(cut).starts_with("{"));
}

TEST_CASE("a model that would answer well is not disturbed, and thinking is free of the format") {
  Setup setup;
  setup.reply = [](const std::string& user) -> std::string {
    const std::string good = R"({"name": "Bob", "age": 7})";
    return user == "think" ? "not { json\n</think>" + good : good;
  };
  const LiveServer live(setup);
  const json::Value plain = parse(live.post("/v1/chat/completions", body(schema_format())).body);
  CHECK(content(plain) == R"({"name": "Bob", "age": 7})");
  const json::Value thought =
      parse(live.post("/v1/chat/completions", body(schema_format() + R"(,"reasoning_effort":"low")", "think")).body);
  CHECK(at(thought, {"choices", 0, "message", "reasoning_content"}) == json::Value("not { json"));
  CHECK(content(thought) == R"({"name": "Bob", "age": 7})");
}

TEST_CASE("the schema is shown to the model, a bare json_object is not") {
  const LiveServer live;
  const auto prompt = [&](const std::string& extra) {
    const json::Value tokens = at(parse(live.post("/tokenize", body(extra)).body), {"tokens"});
    return at(parse(live.post("/detokenize", R"({"tokens":)" + json::dump(tokens) + "}").body), {"prompt"}).as_string();
  };
  const std::string with_schema = prompt(schema_format(R"({"type":"object","required":["a"]})"));
  CHECK(with_schema.find("## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
                         R"({"type": "object", "required": ["a"]})") != std::string::npos);
  CHECK(prompt(R"("response_format":{"type":"json_object"})").find("Response Format") == std::string::npos);
}

TEST_CASE("vLLM's fields mean the same, on both endpoints") {
  const LiveServer live(babble());
  const auto chat = [&](const std::string& extra) {
    return content(parse(live.post("/v1/chat/completions", body(extra + R"(,"max_tokens":200,"seed":3)")).body));
  };
  for (const char* extra : {R"("guided_choice":["yes","no"])", R"("structured_outputs":{"choice":["yes","no"]})"}) {
    const std::string text = chat(extra);
    const bool one = text == "yes" || text == "no";
    CHECK_MESSAGE(one, text);
  }
  const std::string number = chat(R"("guided_regex":"[1-9]\\d{2}-x")");
  CHECK(number.size() == 5);
  CHECK(number.ends_with("-x"));
  CHECK(chat(R"("guided_json":{"const":[1,2]})") == "[1,2]");
  CHECK(chat(R"("guided_json":"{\"const\":null}")") == "null");
  CHECK(chat(R"("structured_outputs":{"json":{"const":"q"},"regex":null})") == "\"q\"");
  CHECK(chat(R"("structured_outputs":{"json_object":true})").starts_with("{"));
  const json::Value raw = parse(
      live.post("/v1/completions", R"({"prompt":["a","b"],"guided_choice":["left","right"],"max_tokens":50,"seed":5})")
          .body);
  for (int i = 0; i < 2; ++i) {
    const std::string text = at(raw, {"choices", i, "text"}).as_string();
    const bool one = text == "left" || text == "right";
    CHECK_MESSAGE(one, text);
    CHECK(at(raw, {"choices", i, "finish_reason"}) == json::Value("stop"));
  }
}

TEST_CASE("with tools the model may call instead, with a demanded call a format is refused") {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],)";
  Setup setup;
  setup.reply = [](const std::string& user) -> std::string {
    return user == "call"
               ? "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
               : R"({"name":"x","age":1})";
  };
  const LiveServer live(setup);
  const json::Value called = parse(live.post("/v1/chat/completions", body(tools + schema_format(), "call")).body);
  CHECK(at(called, {"choices", 0, "finish_reason"}) == json::Value("tool_calls"));
  CHECK(at(called, {"choices", 0, "message", "tool_calls", 0, "function", "name"}) == json::Value("f"));
  const json::Value answered = parse(live.post("/v1/chat/completions", body(tools + schema_format(), "say")).body);
  CHECK(content(answered) == R"({"name":"x","age":1})");
  const auto refused =
      live.post("/v1/chat/completions", body(tools + R"("tool_choice":"required",)" + schema_format()));
  CHECK(refused.status == 400);
  CHECK(at(parse(refused.body), {"error", "param"}) == json::Value("tool_choice"));
}

TEST_CASE("a continued message is the beginning of the reply's format") {
  Setup setup;
  setup.reply = [](const std::string&) { return std::string(R"(ob","age":9})"); };
  const LiveServer live(setup);
  const auto continued = [&](const std::string& begun) {
    return live.post("/v1/chat/completions",
                     R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":)" +
                         json::quote(begun) + R"(}],"continue_final_message":true,"max_tokens":300,)" +
                         schema_format() + "}");
  };
  const json::Value schema = parse(kSchema);
  const json::Value doc = parse(continued(R"({"name":"B)").body);
  const auto value = json::parse(R"({"name":"B)" + content(doc), "reply");
  REQUIRE_MESSAGE(value.has_value(), content(doc));
  CHECK(valid(*value, schema, schema));
  CHECK(continued("Sure: {").status == 400);
}

TEST_CASE("what a format cannot promise is a 400 that names keyword and place") {
  const LiveServer live;
  const struct {
    std::string extra, param, message;
  } cases[] = {
      {schema_format(R"({"type":"object","properties":{"a":{"not":{}}}})"),
       "response_format.json_schema.schema.properties.a", "the schema keyword not is not supported"},
      {schema_format(R"({"type":"string","pattern":"("})"), "response_format.json_schema.schema.pattern",
       "regular expression"},
      {schema_format(R"({"type":"integer","minimum":2,"maximum":1})"), "response_format.json_schema.schema", "no text"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})", "response_format.json_schema",
       "schema"},
      {R"("response_format":{})", "response_format.type", "required"},
      {R"("guided_grammar":"root ::= x")", "guided_grammar", "not supported"},
      {R"("structured_outputs":{"structural_tag":"{}"})", "structured_outputs.structural_tag", "not supported"},
      {R"("structured_outputs":{"regex":"a","choice":["b"]})", "structured_outputs", "one format"},
      {R"("guided_regex":"a","guided_choice":["b"])", "guided_choice", "cannot both be given"},
      {R"("guided_regex":7)", "guided_regex", "must be a string"},
      {R"("guided_choice":[])", "guided_choice", "list of texts"},
      {R"("guided_json":"{")", "guided_json", "is not JSON"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.extra);
    for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
      const auto response = live.post(path, body(R"("prompt":"p",)" + c.extra));
      CHECK(response.status == 400);
      const json::Value doc = parse(response.body);
      CHECK(at(doc, {"error", "param"}) == json::Value(c.param));
      CHECK_MESSAGE(at(doc, {"error", "message"}).as_string().find(c.message) != std::string::npos, response.body);
    }
  }
}
