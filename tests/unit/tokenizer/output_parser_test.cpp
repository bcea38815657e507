#include "dsf/tokenizer/output_parser.h"

#include <random>

#include "fixtures.h"

using namespace dsf;
using namespace dsf::test;
using tokenizer::EndCause;
using tokenizer::Event;
using tokenizer::EventKind;
using tokenizer::FinishReason;
using tokenizer::OutputParser;
using tokenizer::ParsedOutput;
using tokenizer::ParserOptions;
using tokenizer::ParserStart;

namespace {

ParserOptions content() { return {}; }
ParserOptions reasoning() { return {.start = ParserStart::kReasoning}; }
ParserOptions with_tools(std::string_view tools, ParserStart start = ParserStart::kContent) {
  auto parsed = tokenizer::parse_tools(parse_json(tools));
  REQUIRE(parsed);
  return {.start = start, .tools = *parsed};
}
constexpr std::string_view kWeather =
    R"([{"name":"get_weather","parameters":{"properties":{"city":{"type":"string"},"days":{"type":"integer"},"opts":{"type":["object","null"]},
        "flag":{"type":"boolean"},"list":{"type":"array"},"level":{"enum":[1,2,3]},"any":{},"both":{"anyOf":[{"type":"string"},{"type":"number"}]},
        "score":{"type":"number"}}}}])";

struct Run {
  ParsedOutput result;
  std::vector<Event> events;  // neighbours joined
};

void join(std::vector<Event>& all, const std::vector<Event>& more) {
  for (const Event& e : more) {
    const bool joins = e.kind == EventKind::kReasoning || e.kind == EventKind::kContent || e.kind == EventKind::kCallArguments;
    if (joins && !all.empty() && all.back().kind == e.kind && all.back().call == e.call) {
      all.back().text += e.text;
    } else {
      all.push_back(e);
    }
  }
}

Run run(const std::vector<std::string>& pieces, ParserOptions options, EndCause cause) {
  int next_id = 0;
  options.new_call_id = [&] { return "call_" + std::to_string(next_id++); };
  OutputParser parser(std::move(options));
  Run out;
  for (const std::string& piece : pieces) join(out.events, parser.push(piece));
  join(out.events, parser.finish(cause));
  out.result = parser.result();
  return out;
}

// What a client that only sees the stream ends up with.
void check_stream_equals_result(const Run& r) {
  std::string reasoning_text, content_text;
  std::vector<std::string> arguments(r.result.calls.size());
  std::vector<int> phases(r.result.calls.size(), 0);  // 0 unseen, 1 begun, 2 ended
  for (const Event& e : r.events) {
    const auto call = static_cast<size_t>(e.call);
    switch (e.kind) {
      case EventKind::kReasoning: reasoning_text += e.text; break;
      case EventKind::kContent: content_text += e.text; break;
      case EventKind::kCallBegin:
        REQUIRE(phases.at(call)++ == 0);
        REQUIRE(e.text == r.result.calls[call].name);
        REQUIRE(e.id == r.result.calls[call].id);
        break;
      case EventKind::kCallArguments:
        REQUIRE(phases.at(call) == 1);
        arguments[call] += e.text;
        break;
      case EventKind::kCallEnd: REQUIRE(phases.at(call)++ == 1); break;
    }
  }
  REQUIRE(reasoning_text == r.result.reasoning);
  REQUIRE(content_text == r.result.content);
  for (size_t i = 0; i < arguments.size(); ++i) {
    REQUIRE(arguments[i] == r.result.calls[i].arguments);
    REQUIRE((phases[i] == 2) == r.result.calls[i].complete);
    if (r.result.calls[i].complete) REQUIRE(json::parse(arguments[i], "arguments", {.reject_duplicate_keys = false}));
  }
}

void check_same(const Run& a, const Run& b) {
  REQUIRE(a.events == b.events);
  REQUIRE(a.result.finish == b.result.finish);
  REQUIRE(a.result.stop_string == b.result.stop_string);
  REQUIRE(a.result.unclosed_thinking == b.result.unclosed_thinking);
  REQUIRE(a.result.tool_parse_failures == b.result.tool_parse_failures);
  REQUIRE(a.result.dropped_calls == b.result.dropped_calls);
  REQUIRE(a.result.text_after_calls == b.result.text_after_calls);
  REQUIRE(a.result.repaired_values == b.result.repaired_values);
  REQUIRE(a.result.calls.size() == b.result.calls.size());
  for (size_t i = 0; i < a.result.calls.size(); ++i) REQUIRE(a.result.calls[i].raw == b.result.calls[i].raw);
  check_stream_equals_result(b);
}

// Parses whole, byte by byte, and cut once at every place: always the same.
ParsedOutput parse(const std::string& text, const ParserOptions& options = content(), EndCause cause = EndCause::kEos) {
  CAPTURE(text);
  const Run whole = run({text}, options, cause);
  check_stream_equals_result(whole);
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  check_same(whole, run(bytes, options, cause));
  for (size_t cut = 1; cut < text.size(); ++cut) check_same(whole, run({text.substr(0, cut), text.substr(cut)}, options, cause));
  return whole.result;
}

std::string param(const std::string& key, const std::string& value, const std::string& is_string = "true") {
  return "<｜DSML｜ parameter name=\"" + key + "\" string=\"" + is_string + "\">" + value + "</｜DSML｜ parameter>\n";
}
std::string invoke(const std::string& name, const std::string& body) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + body + "</｜DSML｜ invoke>\n";
}
std::string block(const std::string& body) { return "\n\n<｜DSML｜ calls>\n" + body + "</｜DSML｜ calls>"; }
std::string arguments(const std::string& body, const ParserOptions& options = content()) {
  const ParsedOutput out = parse(block(invoke("get_weather", body)), options);
  REQUIRE(out.calls.size() == 1);
  REQUIRE(out.calls[0].complete);
  REQUIRE(out.finish == FinishReason::kToolCalls);
  return out.calls[0].arguments;
}

}  // namespace

TEST_CASE("reasoning, content and calls of a well formed reply") {
  const auto out = parse("I think.\n\n</think>\n\nHere:" + block(invoke("f", param("city", "Oslo") + param("days", "3", "false")) + invoke("g", "\n")),
                         reasoning());
  CHECK(out.reasoning == "I think.");
  CHECK(out.content == "Here:");
  REQUIRE(out.calls.size() == 2);
  CHECK(out.calls[0].name == "f");
  CHECK(out.calls[0].arguments == R"({"city": "Oslo", "days": 3})");
  CHECK(out.calls[0].raw == invoke("f", param("city", "Oslo") + param("days", "3", "false")).substr(0, out.calls[0].raw.size()));
  CHECK(out.calls[0].raw.ends_with("</｜DSML｜ invoke>"));
  CHECK(out.calls[1].arguments == "{}");
  CHECK(out.finish == FinishReason::kToolCalls);
  CHECK_FALSE(out.unclosed_thinking);
}

TEST_CASE("a turn of calls alone has no content") {
  const auto out = parse("need it</think>" + block(invoke("f", "")), reasoning());
  CHECK(out.content.empty());
  CHECK(out.calls.size() == 1);
  CHECK(parse(block(invoke("f", ""))).content.empty());
}

TEST_CASE("newlines around the tags") {
  CHECK(parse("\n\nhi\n\n", content()).content == "hi\n\n");
  CHECK(parse("\n\nR\n\nS\n</think>\n\n\nC", reasoning()).reasoning == "R\n\nS");
  CHECK(parse("\n\nR\n</think>\n\n\nC", reasoning()).content == "C");
  ParserOptions continued = reasoning();
  continued.continues_text = true;
  CHECK(parse("\nR</think>\nC", continued).reasoning == "\nR");
  CHECK(parse("\nR</think>\nC", continued).content == "C");
  ParserOptions continued_content = content();
  continued_content.continues_text = true;
  CHECK(parse("\nC", continued_content).content == "\nC");
  CHECK(parse("a\n\n\n" + block(invoke("f", ""))).content == "a");
  CHECK(parse("a\n\n<b").content == "a\n\n<b");
  CHECK(parse("R\n\n" + block(invoke("f", "")), reasoning()).reasoning == "R");
}

TEST_CASE("doubled and extra thinking tags are swallowed where they have no meaning") {
  CHECK(parse("<think>R<think>S</think>C", reasoning()).reasoning == "RS");
  const auto out = parse("a</think>b<think>c");
  CHECK(out.content == "ab<think>c");
  CHECK(out.reasoning.empty());
}

TEST_CASE("text that only looks like a tag is text") {
  for (const char* text : {"a < b", "</thin", "</thinking>", "<｜DSML｜", "<｜DSML｜ call>", "<｜DSML｜ callsx>", "<｜DSML｜ invoke name=\"f\">", "<｜DSML", "<",
                           "<<<", "｜DSML｜ calls>", "<｜DSML｜  calls>", "</｜DSML｜ calls>", "< ｜DSML｜ calls>", "<tool_calls>"}) {
    CHECK(parse(text).content == text);
    CHECK(parse(text).finish == FinishReason::kStop);
  }
}

TEST_CASE("a calls block inside open thinking ends the thinking") {
  const auto out = parse("hmm\n\n<｜DSML｜ calls>\n" + invoke("f", "") + "</｜DSML｜ calls>", reasoning());
  CHECK(out.reasoning == "hmm");
  CHECK(out.calls.size() == 1);
  CHECK_FALSE(out.unclosed_thinking);
}

TEST_CASE("thinking that never closes stays reasoning and is reported") {
  const auto out = parse("on and on", reasoning());
  CHECK(out.reasoning == "on and on");
  CHECK(out.content.empty());
  CHECK(out.unclosed_thinking);
  CHECK(out.finish == FinishReason::kStop);
  const auto cut = parse("on and on", reasoning(), EndCause::kLength);
  CHECK_FALSE(cut.unclosed_thinking);
  CHECK(cut.finish == FinishReason::kLength);
  CHECK(parse("half </thi", reasoning(), EndCause::kLength).reasoning == "half </thi");
}

TEST_CASE("every accepted spelling of the tags") {
  for (const std::string name : {"calls", "tool_calls", "function_calls"}) {
    for (const std::string space : {"", " "}) {
      const std::string text = "\n<｜DSML｜" + space + name + ">\n<｜DSML｜" + space + "invoke  \n name=\"f\" >\n<｜DSML｜" + space +
                               "parameter\tname=\"k\"  string=\"false\" \n>1</｜DSML｜" + space + "parameter >\n</｜DSML｜" + space + "invoke\n>\n</｜DSML｜" +
                               space + name + " \n>";
      const auto out = parse(text);
      REQUIRE(out.calls.size() == 1);
      CHECK(out.calls[0].arguments == R"({"k": 1})");
      CHECK(out.content.empty());
      CHECK(out.finish == FinishReason::kToolCalls);
    }
  }
  // The closing name need not equal the opening one.
  CHECK(parse("<｜DSML｜tool_calls>" + invoke("f", "") + "</｜DSML｜ calls>x").text_after_calls);
}

TEST_CASE("string values come through byte for byte, as JSON") {
  CHECK(arguments(param("city", "")) == R"({"city": ""})");
  CHECK(arguments(param("city", " a\n\tb\"\\ \x01 /\x7F 東京 🙂\n")) == "{\"city\": \" a\\n\\tb\\\"\\\\ \\u0001 /\x7F 東京 🙂\\n\"}");
  CHECK(arguments(param("city", "<b>x</b> < </ <｜DSML｜ x </｜DSML｜ y <｜DSML｜ calls> <｜DSML｜ invoke name=\"q\"> </think>")) ==
        R"({"city": "<b>x</b> < </ <｜DSML｜ x </｜DSML｜ y <｜DSML｜ calls> <｜DSML｜ invoke name=\"q\"> </think>"})");
  CHECK(arguments(param("city", "&lt;\n\n")) == R"({"city": "&lt;\n\n"})");
  CHECK(arguments(param("quo te", "v")) == R"({"quo te": "v"})");
}

TEST_CASE("JSON values are copied verbatim, and repaired only when no strict reader takes them") {
  const auto json_value = [](const std::string& body, std::string_view key = "k") {
    const std::string all = arguments(param(std::string(key), body, "false"), with_tools(kWeather));
    return all.substr(key.size() + 5, all.size() - key.size() - 6);
  };
  CHECK(json_value(" {\"a\":1 , \"b\":[ ]}\n") == "{\"a\":1 , \"b\":[ ]}");
  CHECK(json_value("1.50") == "1.50");
  CHECK(json_value("null") == "null");
  CHECK(json_value("\"s\"") == "\"s\"");
  CHECK(json_value("123456789012345678901234567890") == "123456789012345678901234567890");
  CHECK(json_value("{\"a\": [1, {\"b\": \"}\"") == "{\"a\": [1, {\"b\": \"}\"}]}");
  CHECK(json_value("[1, 2") == "[1, 2]");
  CHECK(json_value("{\"a\": \"open") == R"("{\"a\": \"open")");
  CHECK(json_value("[1}") == "\"[1}\"");
  CHECK(json_value("True") == "true");
  CHECK(json_value("FALSE") == "false");
  CHECK(json_value("None") == "null");
  CHECK(json_value("+3") == "3");
  CHECK(json_value("007") == "7");
  CHECK(json_value(".5") == "0.5");
  CHECK(json_value("-.5") == "-0.5");
  CHECK(json_value("-0") == "-0");  // strict JSON already
  CHECK(json_value("-00") == "0");
  CHECK(json_value("NaN") == "\"NaN\"");
  CHECK(json_value("Infinity") == "\"Infinity\"");
  CHECK(json_value("1e999") == "\"1e999\"");
  CHECK(json_value("hello") == "\"hello\"");
  CHECK(json_value("") == "\"\"");
  CHECK(json_value(" x ") == "\" x \"");
  // The schema decides which words count.
  CHECK(json_value("True", "city") == "\"True\"");
  CHECK(json_value("True", "days") == "\"True\"");
  CHECK(json_value("+3", "days") == "3");
  CHECK(json_value("3.", "days") == "3.0");
  CHECK(json_value(".5", "days") == "\".5\"");
  CHECK(json_value("None", "opts") == "null");
  CHECK(json_value("3", "city") == "3");
}

TEST_CASE("a string whose schema allows no string is read as the schema's type, if it reads") {
  const auto value = [](const std::string& key, const std::string& body) {
    const std::string all = arguments(param(key, body), with_tools(kWeather));
    return all.substr(key.size() + 5, all.size() - key.size() - 6);
  };
  CHECK(value("days", "3") == "3");
  CHECK(value("days", " 3 ") == "3");
  CHECK(value("days", "3.5") == "\"3.5\"");
  CHECK(value("days", "three") == "\"three\"");
  CHECK(value("score", "3.5") == "3.5");
  CHECK(value("score", "3") == "3");
  CHECK(value("flag", "True") == "true");
  CHECK(value("flag", "1") == "\"1\"");
  CHECK(value("opts", "{\"a\": 1}") == "{\"a\": 1}");
  CHECK(value("opts", "null") == "null");
  CHECK(value("opts", "{\"a\": 1") == "\"{\\\"a\\\": 1\"");
  CHECK(value("list", "[1,2]") == "[1,2]");
  CHECK(value("level", "2") == "2");
  CHECK(value("city", "3") == "\"3\"");
  CHECK(value("both", "3") == "\"3\"");
  CHECK(value("any", "3") == "\"3\"");
  CHECK(value("undeclared", "3") == "\"3\"");
}

TEST_CASE("a missing or odd string attribute counts as true") {
  const auto one = [](const std::string& head, std::string_view key, const std::string& body) {
    return arguments("<｜DSML｜ parameter name=\"" + std::string(key) + "\"" + head + ">" + body + "</｜DSML｜ parameter>\n", with_tools(kWeather));
  };
  CHECK(one("", "city", "3") == R"({"city": "3"})");
  CHECK(one(" string=\"maybe\"", "city", "x") == R"({"city": "x"})");
  CHECK(one("", "days", "3") == R"({"days": 3})");
  CHECK(one(" kind=\"x\" string=\"false\"", "city", "3") == R"({"city": 3})");
}

TEST_CASE("a missing close of a parameter, call or block is tolerated") {
  const std::string open_a = "<｜DSML｜ parameter name=\"a\" string=\"true\">x";
  const std::string head = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
  for (const std::string newline : {"", "\n"}) {
    CHECK(parse(head + open_a + newline + param("b", "y") + "</｜DSML｜ invoke>\n</｜DSML｜ calls>").calls[0].arguments == R"({"a": "x", "b": "y"})");
    CHECK(parse(head + open_a + newline + "</｜DSML｜ invoke>\n</｜DSML｜ calls>").calls[0].arguments == R"({"a": "x"})");
    CHECK(parse(head + open_a + newline + "</｜DSML｜ calls>").calls[0].arguments == R"({"a": "x"})");
  }
  CHECK(parse(head + open_a + "\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>").calls[0].arguments == "{\"a\": \"x\\n\"}");
  const auto two = parse(head + param("a", "x") + "<｜DSML｜ invoke name=\"g\">\n</｜DSML｜ calls>");
  REQUIRE(two.calls.size() == 2);
  CHECK(two.calls[0].arguments == R"({"a": "x"})");
  CHECK(two.calls[1].name == "g");
  CHECK(two.calls[1].arguments == "{}");
}

TEST_CASE("a wrapper named arguments or input is unwrapped when its object fits the declaration") {
  const auto tools = with_tools(kWeather);
  CHECK(arguments(param("arguments", R"({"city": "Oslo", "days": 3})", "false"), tools) == R"({"city": "Oslo", "days": 3})");
  CHECK(arguments(param("input", R"( {"city":"Oslo"} )"), tools) == R"({"city":"Oslo"})");
  CHECK(arguments(param("input", R"("{\"city\": \"Oslo\"}")", "false"), tools) == R"({"city": "Oslo"})");
  // Not when it does not fit, is empty, is not alone, or nothing is declared.
  CHECK(arguments(param("arguments", R"({"town": "Oslo"})", "false"), tools) == R"({"arguments": {"town": "Oslo"}})");
  CHECK(arguments(param("arguments", "{}", "false"), tools) == R"({"arguments": {}})");
  CHECK(arguments(param("arguments", "x"), tools) == R"({"arguments": "x"})");
  CHECK(arguments(param("arguments", R"({"city": "a"})", "false") + param("days", "1", "false"), tools) ==
        R"({"arguments": {"city": "a"}, "days": 1})");
  CHECK(arguments(param("days", "1", "false") + param("arguments", R"({"city": "a"})", "false"), tools) ==
        R"({"days": 1, "arguments": {"city": "a"}})");
  CHECK(arguments(param("arguments", R"({"city": "a"})", "false")) == R"({"arguments": {"city": "a"}})");
  CHECK(arguments(param("input", R"({"city": "a"})", "false"), with_tools(R"([{"name":"get_weather","parameters":{"properties":{"input":{},"city":{}}}}])")) ==
        R"({"input": {"city": "a"}})");
}

TEST_CASE("a repeated parameter keeps both members") {
  CHECK(arguments(param("a", "1") + param("a", "2")) == R"({"a": "1", "a": "2"})");
}

TEST_CASE("text between the tags of a block, and after it, is dropped") {
  const auto out = parse("x\n\n<｜DSML｜ calls>noise <b>\n<｜DSML｜ invoke name=\"f\">noise " + param("a", "1") + "noise<\n</｜DSML｜ invoke>noise</｜DSML｜ calls>\n");
  CHECK(out.content == "x");
  CHECK(out.calls[0].arguments == R"({"a": "1"})");
  CHECK_FALSE(out.text_after_calls);
  const auto more = parse(block(invoke("f", "")) + "\n\nand then" + block(invoke("g", "")));
  CHECK(more.calls.size() == 1);
  CHECK(more.content.empty());
  CHECK(more.text_after_calls);
}

TEST_CASE("a block that names no call is content, newlines before it included") {
  const std::string raw = "\n\n<｜DSML｜ calls>\nnothing </b>\n</｜DSML｜ calls>";
  auto out = parse("a" + raw + "b");
  CHECK(out.content == "a" + raw + "b");
  CHECK(out.tool_parse_failures == 1);
  CHECK(out.finish == FinishReason::kStop);
  CHECK(parse(raw).content == raw.substr(2));  // leading newlines go
  CHECK(parse("R" + raw, reasoning()).content == raw.substr(2));
  CHECK(parse("R" + raw, reasoning()).reasoning == "R");
  // Also when the reply ends before the close, or inside the name.
  CHECK(parse("a\n<｜DSML｜ calls>\n<｜DSML｜ invo").content == "a\n<｜DSML｜ calls>\n<｜DSML｜ invo");
  CHECK(parse("a\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f").content == "a\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f");
  // And not when max_tokens cut it.
  out = parse("a\n<｜DSML｜ calls>\n<｜DSML｜ invo", content(), EndCause::kLength);
  CHECK(out.content == "a");
  CHECK(out.tool_parse_failures == 0);
  CHECK(out.finish == FinishReason::kLength);
  // A later block is parsed.
  out = parse("a" + raw + block(invoke("f", "")));
  CHECK(out.content == "a" + raw);
  CHECK(out.calls.size() == 1);
}

TEST_CASE("a block cut by max_tokens gives its complete calls and no invented brace") {
  const std::string first = "\n\n<｜DSML｜ calls>\n" + invoke("f", param("a", "1"));
  const auto inside = parse(first + "<｜DSML｜ invoke name=\"g\">\n<｜DSML｜ parameter name=\"b\" string=\"true\">par", content(), EndCause::kLength);
  REQUIRE(inside.calls.size() == 2);
  CHECK(inside.calls[0].complete);
  CHECK_FALSE(inside.calls[1].complete);
  CHECK(inside.calls[1].arguments == R"({"b": "par)");
  CHECK(inside.content.empty());
  CHECK(inside.finish == FinishReason::kLength);
  const auto between = parse(first + "<｜DSML｜ invoke name=\"g\">\n" + param("b", "x"), content(), EndCause::kLength);
  CHECK_FALSE(between.calls[1].complete);
  CHECK(between.calls[1].arguments == R"({"b": "x")");
}

TEST_CASE("a call left open at EOS counts when everything it started is complete") {
  const std::string head = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
  auto out = parse(head + param("a", "1"));
  CHECK(out.calls[0].complete);
  CHECK(out.calls[0].arguments == R"({"a": "1"})");
  CHECK(out.finish == FinishReason::kToolCalls);
  CHECK(parse(head).calls[0].arguments == "{}");
  CHECK(parse("<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"").calls[0].arguments == "{}");
  CHECK(parse(head + param("a", "1") + "</｜DSML｜ inv").calls[0].complete);
  for (const std::string tail : {"<｜DSML｜ parameter name=\"b", "<｜DSML｜ parameter name=\"b\" stri", "<｜DSML｜ parameter name=\"b\" string=\"true\">x",
                                 "<｜DSML｜ parameter name=\"b\" string=\"true\">x</｜DSML｜ param"}) {
    out = parse(head + param("a", "1") + tail);
    CHECK_FALSE(out.calls[0].complete);
    CHECK(out.content.empty());
    CHECK(out.finish == FinishReason::kStop);
    out = parse("\n\n<｜DSML｜ calls>\n" + invoke("e", "") + head.substr(head.find("<｜DSML｜ invoke")) + tail);
    CHECK(out.calls[0].complete);
    CHECK(out.finish == FinishReason::kToolCalls);
  }
}

TEST_CASE("calls the request did not want are dropped and counted") {
  ParserOptions single = content();
  single.parallel_calls = false;
  auto out = parse(block(invoke("f", param("a", "1")) + invoke("g", param("b", "2")) + invoke("h", "")), single);
  REQUIRE(out.calls.size() == 1);
  CHECK(out.calls[0].arguments == R"({"a": "1"})");
  CHECK(out.dropped_calls == 2);
  CHECK(out.finish == FinishReason::kToolCalls);

  // Unknown names are calls, so that the client can answer "unknown tool" ...
  CHECK(parse(block(invoke("nope", "")), with_tools(kWeather)).calls.size() == 1);
  // ... unless the choice named another function.
  ParserOptions named = with_tools(kWeather);
  named.only_function = "get_weather";
  out = parse("x" + block(invoke("nope", param("a", "1"))), named);
  CHECK(out.calls.empty());
  CHECK(out.dropped_calls == 1);
  CHECK(out.content == "x");
  CHECK(out.finish == FinishReason::kStop);
}

TEST_CASE("with tool_choice none the markup stays content") {
  ParserOptions off = content();
  off.parse_calls = false;
  const std::string text = "a\n" + block(invoke("f", param("a", "1"))).substr(1) + "b\nc\n";
  auto out = parse(text, off);
  CHECK(out.content == text);
  CHECK(out.calls.empty());
  CHECK(out.markup_in_content);
  CHECK_FALSE(parse("a\n\nb\n", off).markup_in_content);
  CHECK(parse("\n\na\n\nb\n", off).content == "a\n\nb\n");
  off.start = ParserStart::kReasoning;
  CHECK(parse("R\n</think>\nC", off).content == "C");
}

TEST_CASE("a block, or a call, that the server forced is already open") {
  ParserOptions forced{.start = ParserStart::kCalls};
  CHECK(parse(invoke("f", param("a", "1")) + "</｜DSML｜ calls>", forced).calls[0].arguments == R"({"a": "1"})");
  const auto junk = parse("sorry", forced);
  CHECK(junk.content == "sorry");
  CHECK(junk.tool_parse_failures == 1);

  ParserOptions named{.start = ParserStart::kNamedCall, .forced_name = "f"};
  const auto out = parse(param("a", "1") + "</｜DSML｜ invoke>\n</｜DSML｜ calls>", named);
  REQUIRE(out.calls.size() == 1);
  CHECK(out.calls[0].name == "f");
  CHECK(out.calls[0].arguments == R"({"a": "1"})");
  CHECK(out.calls[0].raw == invoke("f", param("a", "1")).substr(0, out.calls[0].raw.size()));
  CHECK(parse("", named).calls[0].arguments == "{}");
  CHECK_FALSE(parse("", named, EndCause::kLength).calls[0].complete);
}

TEST_CASE("stop strings end the content where they begin") {
  ParserOptions stop = reasoning();
  stop.stop = {"STOP", "\n\nQ:", "</"};
  auto out = parse("R STOP R</think>one STO two STOP three" + block(invoke("f", "")), stop);
  CHECK(out.reasoning == "R STOP R");
  CHECK(out.content == "one STO two ");
  CHECK(out.stop_string == "STOP");
  CHECK(out.finish == FinishReason::kStop);
  CHECK(out.calls.empty());
  out = parse("</think>a\n\nQ: b", stop);
  CHECK(out.content == "a");
  CHECK(out.stop_string == "\n\nQ:");
  // The newlines of a block never match, and its opening lets go what was held.
  out = parse("</think>a ST" + block(invoke("f", "")), stop);
  CHECK(out.content == "a ST");
  CHECK(out.calls.size() == 1);
  CHECK_FALSE(out.stop_string);
  CHECK(parse("</think>a ST", stop).content == "a ST");
  // A swallowed </think> in content is not content; other text with "</" is.
  CHECK(parse("</think>a</think>b</c", stop).content == "ab");

  ParserOptions include = content();
  include.stop = {"abab", "bac", ""};
  include.include_stop = true;
  CHECK(parse("xabacx", include).content == "xabac");
  CHECK(parse("xaababx", include).content == "xaabab");
  include.include_stop = false;
  CHECK(parse("xaababx", include).content == "xa");
  include.stop = {"b", "ab"};
  CHECK(parse("xab", include).content == "x");  // of two that end together, the one that began first
}

TEST_CASE("text is shown as soon as it can no longer change") {
  OutputParser parser(reasoning());
  const auto shown = [&](std::string_view text) {
    std::string out;
    for (const Event& e : parser.push(text)) out += e.text;
    return out;
  };
  CHECK(shown("abc") == "abc");
  CHECK(shown("\n") == "");
  CHECK(shown("</") == "");
  CHECK(shown("x") == "\n</x");
  CHECK(shown("</think>\n\n") == "");
  CHECK(shown("C<") == "C");
  CHECK(shown("｜DSML｜ calls>") == "");
  CHECK(shown("<｜DSML｜ invoke name=\"f") == "");
  CHECK(shown("\"") == "f");
  CHECK(shown(">\n<｜DSML｜ parameter name=\"k\" string=\"true\">") == "{\"k\": \"");
  CHECK(shown("line 1\n") == "line 1");
  CHECK(shown("line \"2\"") == "\\nline \\\"2\\\"");
  CHECK(shown("</｜DSML｜ para") == "");
  CHECK(shown("meter>") == "\"");
  CHECK(shown("\n<｜DSML｜ parameter name=\"j\" string=\"false\">[1,") == "");
  CHECK(shown("2]</｜DSML｜ parameter>") == ", \"j\": [1,2]");
  CHECK(shown("\n</｜DSML｜ invoke>") == "}");
  CHECK_FALSE(parser.done());
  CHECK(shown("\n</｜DSML｜ calls>") == "");
  CHECK(parser.done());
}

TEST_CASE("tokens of the reasoning are counted up to its close") {
  OutputParser parser(reasoning());
  for (const char* piece : {"a", " b", "</think>", "\n\n", "c"}) parser.push(piece);
  parser.finish(EndCause::kEos);
  CHECK(parser.result().reasoning_tokens == 3);
  OutputParser chat(content());
  chat.push("x");
  chat.finish(EndCause::kEos);
  CHECK(chat.result().reasoning_tokens == 0);
}

TEST_CASE("call ids are unguessable and well formed") {
  const std::string a = tokenizer::new_call_id(), b = tokenizer::new_call_id();
  CHECK(a.size() == 29);
  CHECK(a.starts_with("call_"));
  CHECK(a.find_first_not_of("0123456789abcdef", 5) == std::string::npos);
  CHECK(a != b);
}

TEST_CASE("random text made of tags and pieces of tags parses the same however it is cut") {
  const std::string_view atoms[] = {"<｜DSML｜", "</｜DSML｜", " calls>", " invoke", " name=\"f\">", " parameter name=\"city\"", " string=\"true\">", " string=\"false\">",
                                    "<｜DSML｜ calls>", "</｜DSML｜ calls>", "<｜DSML｜ invoke name=\"get_weather\">", "</｜DSML｜ invoke>", "\n", "\n\n",
                                    "<｜DSML｜ parameter name=\"days\" string=\"true\">", "<｜DSML｜ parameter name=\"input\" string=\"false\">",
                                    "</｜DSML｜ parameter>", "</think>", "<think>", "{\"city\": 1", "}", "3", "True", "x", "é🙂", "\"", "\\", ">", "<", "STOP", "ST"};
  std::mt19937 rng(20261130);
  for (int round = 0; round < 1500; ++round) {
    std::string text;
    for (size_t n = rng() % 24; n > 0; --n) text += atoms[rng() % std::size(atoms)];
    ParserOptions options = with_tools(kWeather, rng() % 2 ? ParserStart::kReasoning : ParserStart::kContent);
    options.continues_text = rng() % 4 == 0;
    options.parse_calls = rng() % 8 != 0;
    options.parallel_calls = rng() % 4 != 0;
    if (rng() % 3 == 0) options.stop = {"STOP", "x\n"};
    const EndCause cause = rng() % 3 == 0 ? EndCause::kLength : EndCause::kEos;
    CAPTURE(text);
    const Run whole = run({text}, options, cause);
    check_stream_equals_result(whole);
    for (int cuts = 0; cuts < 6; ++cuts) {
      std::vector<std::string> pieces;
      for (size_t pos = 0; pos < text.size();) {
        const size_t n = cuts == 0 ? 1 : 1 + rng() % (1U << cuts);
        pieces.push_back(text.substr(pos, n));
        pos += n;
      }
      check_same(whole, run(pieces, options, cause));
    }
  }
}

TEST_CASE("hostile repetition costs linear time") {
  for (const std::string atom : {"\n", "<", "</", "<｜DSML｜", "</think", "<｜DSML｜ calls", "<｜DSML｜ calls ", "\"", "｜"}) {
    OutputParser parser(with_tools(kWeather, ParserStart::kReasoning));
    for (int i = 0; i < 20000; ++i) parser.push(atom);
    parser.finish(EndCause::kEos);
    CHECK(parser.result().reasoning.size() + parser.result().content.size() <= 20000 * atom.size());
  }
  OutputParser value(content());
  value.push("<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"k\" string=\"false\">");
  for (int i = 0; i < 20000; ++i) value.push("[\n<｜DSML｜ ");
  value.push("</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>");
  value.finish(EndCause::kEos);
  CHECK(value.result().calls[0].complete);
}

TEST_CASE("a reply with a format of its own keeps what would be markup, and still begins after the thinking") {
  const std::string text = "\n{\"a\":\"</think>\"}";
  for (const std::string& before : {std::string(), std::string("hm</think>")}) {
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      ParserOptions options = before.empty() ? content() : reasoning();
      options.literal_content = true;
      options.parse_calls = false;
      const Run r = run({before + text.substr(0, cut), text.substr(cut)}, options, EndCause::kEos);
      CHECK(r.result.content == text);
      CHECK(r.result.reasoning == (before.empty() ? "" : "hm"));
      check_stream_equals_result(r);
    }
  }
}
