#include "tools/bench/events.h"

#include <doctest/doctest.h>

#include <random>

#include "tools/bench/made_stream.h"
#include "tools/bench/metrics.h"

using namespace dsf;
using namespace dsf::bench;
using namespace dsf::bench::made;

namespace {

Request of_bytes(const std::string& bytes, int64_t max_tokens = 16) { return request_of(capture_split(bytes, {bytes.size()}), max_tokens); }

}  // namespace

TEST_CASE("vector E: the same stream in every shape gives the same kinds, texts and hashes") {
  const std::string bytes = bytes_of(vector_a());
  const std::string want = facts(request_of(capture_of(vector_a()), 16));
  CHECK(want.find("\"status\":\"ok\"") != std::string::npos);
  CHECK(facts(of_bytes(bytes)) == want);
  CHECK(facts(request_of(capture_split(bytes, std::vector<size_t>(bytes.size(), 1)), 16)) == want);
  const std::string crlf = replaced(bytes, "\n", "\r\n");
  CHECK(facts(of_bytes(crlf)) == want);
  std::vector<size_t> between;  // every \r\n cut in two
  for (size_t at = 0, cr = crlf.find('\r'); cr != std::string::npos; at = cr + 1, cr = crlf.find('\r', at)) between.push_back(cr + 1 - at);
  CHECK(facts(request_of(capture_split(crlf, between), 16)) == want);
  CHECK(facts(of_bytes(replaced(bytes, "data: ", "data:"))) == want);
  const Request commented = of_bytes(replaced(bytes, "\n\n", "\n\n: ping\n\n"));
  CHECK(facts(commented, false) == want);
  CHECK(commented.events.size() > request_of(capture_of(vector_a()), 16).events.size());
  const size_t emoji = bytes.find("\xF0\x9F");
  CHECK(facts(request_of(capture_split(bytes, {emoji + 2}), 16)) == want);
}

TEST_CASE("property: any split of the same bytes into reads gives the same record up to read times") {
  std::mt19937_64 random(20261130);
  const std::string plain = bytes_of(vector_a(false));
  const std::string crlf = replaced(bytes_of(vector_a()), "\n", "\r\n");
  for (const std::string& bytes : {plain, crlf}) {
    const std::string want = facts(of_bytes(bytes));
    for (int round = 0; round < 300; ++round) {
      std::vector<size_t> sizes;
      for (size_t left = bytes.size(); left > 0;) {
        sizes.push_back(1 + random() % (round % 2 == 0 ? 7 : 400));
        left -= std::min(left, sizes.back());
      }
      const Capture capture = capture_split(bytes, sizes);
      const Request r = request_of(capture, 16);
      CHECK_MESSAGE(facts(r) == want, "round ", round);
      int64_t last = 0;
      for (const auto& e : r.events) {
        CHECK(e.t == capture.reads[static_cast<size_t>(e.read)].t);
        CHECK(e.t >= last);
        last = e.t;
      }
    }
  }
}

TEST_CASE("a role-only event and an empty delta are not tokens") {
  const Request r = request_of(capture_of({{10, role_event()},
                                           {20, sse_data(R"({"choices":[{"index":0,"delta":{"content":null}}]})")},
                                           {30, content_event("x", 1)},
                                           {31, finish_event("stop") + usage_event(5, 1) + "data: [DONE]\n\n"}}),
                               64);
  CHECK(r.ok());
  CHECK(r.t.first_event == ms(10));
  CHECK(r.t.first_token == ms(30));
  CHECK(r.events[0].kind == EventKind::kRole);
  CHECK(r.has_flag("short_output"));
}

TEST_CASE("reasoning under both names is one text; both kinds in one delta set both stamps") {
  const Request r = of_bytes(
      sse_data(R"({"choices":[{"index":0,"delta":{"reasoning":"ab","reasoning_content":"ab","content":"c"}}]})") + finish_event("length") +
      usage_event(5, 16) + "data: [DONE]\n\n");
  CHECK(r.events[0].kind == EventKind::kBoth);
  CHECK(r.events[0].chars == 3);
  CHECK(r.t.first_content == r.t.first_token);
}

TEST_CASE("tool calls are tokens") {
  const Request r = of_bytes(
      sse_data(R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]})") +
      sse_data(R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]})") +
      finish_event("tool_calls") + usage_event(5, 9) + "data: [DONE]\n\n");
  CHECK(r.ok());
  CHECK(r.output.tool_events == 2);
  CHECK(r.events[0].kind == EventKind::kTool);
}

TEST_CASE("a one-token reply without text takes its first token from the finish event") {
  const Request r = request_of(capture_of({{1000, finish_event("length")}, {1001, usage_event(460, 1) + "data: [DONE]\n\n"}}), 1);
  CHECK(r.ok());
  CHECK(r.t.first_token == ms(1000));
  CHECK(r.first_token_source == "finish");
}

TEST_CASE("cumulative usage on every event gives weights; a falling count does not") {
  const auto counted = [](const char* text, int total) {
    return sse_data(R"({"choices":[{"index":0,"delta":{"content":")" + std::string(text) + R"("}}],"usage":{"prompt_tokens":5,"completion_tokens":)" +
                std::to_string(total) + R"(,"total_tokens":)" + std::to_string(5 + total) + "}}");
  };
  const Request r = of_bytes(counted("a", 2) + counted("b", 5) + finish_event("length") + usage_event(5, 6) + "data: [DONE]\n\n", 6);
  CHECK(r.weight_source == "usage_delta");
  CHECK(r.events[0].tok == 2);
  CHECK(r.events[1].tok == 3);
  CHECK(request_metrics(r).tail == 1);
  const Request falling = of_bytes(counted("a", 3) + counted("b", 1) + finish_event("length") + usage_event(5, 6) + "data: [DONE]\n\n", 6);
  CHECK(falling.weight_source == "uniform");
  CHECK(falling.has_flag("usage_not_cumulative"));
}

TEST_CASE("missing and wrong usage are told apart from good counts") {
  const std::string tokens = content_event("a", 1, false) + content_event("b", 1, false);
  const Request missing = of_bytes(tokens + finish_event("length") + "data: [DONE]\n\n", 2);
  CHECK(missing.ok());
  CHECK(missing.token_count_source == "chunks");
  CHECK_FALSE(missing.counts_exact());
  CHECK(missing.has_flag("usage_missing"));
  CHECK(of_bytes(tokens + finish_event("length") + usage_event(5, 1) + "data: [DONE]\n\n", 2).has_flag("count_mismatch"));
  CHECK(of_bytes(tokens + finish_event("length") + usage_event(5, 3) + "data: [DONE]\n\n", 2).has_flag("count_mismatch"));
  CHECK(of_bytes(tokens + finish_event("length") + usage_event(5, 2, 9) + "data: [DONE]\n\n", 2).has_flag("count_mismatch"));
  CHECK_FALSE(of_bytes(tokens + finish_event("length") + usage_event(5, 2) + "data: [DONE]\n\n", 2).has_flag("count_mismatch"));
}

TEST_CASE("broken streams have the status that says how they broke") {
  const std::string good = content_event("a", 1);
  const auto status = [](const std::string& bytes) { return std::string(name_of(of_bytes(bytes).status)); };
  CHECK(status(good + sse_data(R"({"error":{"message":"out of memory"}})") + "data: [DONE]\n\n") == "stream_error");
  CHECK(status(good + "event: error\ndata: {\"message\":\"x\"}\n\n") == "stream_error");
  CHECK(status(good) == "truncated");
  CHECK(status(good + finish_event("stop") + "data: {\"choi") == "truncated");
  CHECK(status(good + sse_data("{broken") + finish_event("stop") + "data: [DONE]\n\n") == "protocol_error");
  CHECK(status(good + finish_event("stop") + "data: [DONE]\n\n" + good) == "protocol_error");
  CHECK(status(sse_data(R"({"choices":[{"index":1,"delta":{"content":"x"}}]})") + "data: [DONE]\n\n") == "protocol_error");
  CHECK(status(": ping\n\n") == "empty");
  CHECK(status(good + finish_event("stop") + usage_event(3, 1)) == "ok");
  CHECK(of_bytes(good + sse_data(R"({"error":"bad"})")).error == "bad");
  Capture json = capture_split("{}", {2});
  json.http.content_type = "application/json";
  CHECK(request_of(json, 4).status == Status::kProtocolError);
  json.http.status = 503;
  CHECK(request_of(json, 4).status == Status::kHttpError);
  CHECK(request_of(json, 4).http.error_body == "{}");
}

TEST_CASE("a record survives its JSON") {
  Request r = request_of(capture_of(vector_a()), 16);
  r.id = "decode/75/r0/c1/s0";
  r.phase = "decode";
  r.thinking = "75";
  r.prompt_sha256 = std::string(64, 'a');
  r.add_flag("short_output");
  const json::Value once = to_json(r, "run");
  const auto back = request_from_json(once, "raw:1");
  REQUIRE(back);
  CHECK(json::dump(to_json(*back, "run")) == json::dump(once));
  json::Value broken = once;
  broken.find("events")->find("t")->push(5);
  CHECK_FALSE(request_from_json(broken, "raw:1"));
}

TEST_CASE("bytes that are not UTF-8 become replacement characters") {
  CHECK(clean_utf8("a\xFF\xE2\x82z\xE2\x82\xAC") == "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\xE2\x82\xAC");
  CHECK(count_code_points("a\xE2\x82\xAC\xF0\x9F\x98\x80") == 3);
}
