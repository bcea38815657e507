// Every case that a server can serve, on the script's own clock: the numbers must be those that were written down.
#include "tools/bench/scripted.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tools/bench/made_stream.h"
#include "tools/bench/metrics.h"

using namespace dsf;
using namespace dsf::bench;
using doctest::Approx;

namespace {

// What a perfect network would bring of a script: each chunk one read at its time, or one read a byte.
Capture capture_of(const Script& script) {
  std::vector<made::Piece> pieces;
  Ending ending = Ending::kComplete;
  for (const auto& chunk : script.chunks) {
    if (chunk.what != Chunk::What::kBytes) ending = Ending::kCut;
    else if (!chunk.byte_by_byte) pieces.push_back({chunk.at_ms, chunk.bytes});
    else for (const char c : chunk.bytes) pieces.push_back({chunk.at_ms, std::string(1, c)});
  }
  Capture out = made::capture_of(pieces);
  out.ending = ending;
  return out;
}

struct Seen {
  Request r;
  RequestMetrics m;
  int64_t events(EventKind kind) const {
    return std::count_if(r.events.begin(), r.events.end(), [&](const EventRow& e) { return e.kind == kind; });
  }
};

// 16 tokens, the first after 100 ms, then one every 10 ms, unless the case says otherwise.
template <class Set>
Seen play(Set set) {
  StreamShape shape;
  shape.n_tokens = 16;
  shape.first_ms = 100;
  shape.gap_ms = 10;
  set(shape);
  Seen out;
  out.r = made::request_of(capture_of(make_script(shape)), 16);
  out.m = request_metrics(out.r);
  return out;
}

}  // namespace

TEST_CASE("plain: TTFT is the first token, the rate is one over the gap") {
  const Seen p = play([](StreamShape&) {});
  CHECK(p.r.ok());
  CHECK(*p.m.ttft_ms == 100);
  CHECK(*p.m.decode == Approx(100));
  CHECK(*p.m.decode_ref == Approx(100));
  CHECK(*p.m.tpot_ms == Approx(10));
  CHECK(*p.m.prefill == Approx(4630));
  CHECK(*p.m.e2e_ms == 250);
  CHECK(p.events(EventKind::kContent) == 16);
}

TEST_CASE("bundled tokens: known weights give the true rate, unknown ones the reference rate, and chunks are never tokens") {
  const auto bundled = [](StreamShape& s) { s.first_event_tokens = 4, s.tokens_per_event = 3; };  // 4 + 3 + 3 + 3 + 3
  const Seen uniform = play(bundled);
  CHECK(uniform.r.weight_source == "uniform");
  CHECK(*uniform.m.decode_ref == Approx(15 / 0.040));
  CHECK(*uniform.m.tokens_per_event == Approx(3.2));
  const Seen ids = play([&](StreamShape& s) { bundled(s), s.token_ids = true; });
  CHECK(ids.r.weight_source == "token_ids");
  CHECK(*ids.m.decode == Approx(12 / 0.040));
  CHECK(ids.m.w1 == 4);
  const Seen usage = play([&](StreamShape& s) { bundled(s), s.continuous_usage = true; });
  CHECK(usage.r.weight_source == "usage_delta");
  CHECK(*usage.m.decode == Approx(12 / 0.040));
  CHECK(usage.m.itl_ms.front().value == Approx(10.0 / 3));
}

TEST_CASE("a role-only first chunk moves TTFR and nothing else") {
  const Seen p = play([](StreamShape& s) { s.role_ms = 20; });
  CHECK(*p.m.ttfr_ms == 20);
  CHECK(*p.m.ttft_ms == 100);
  CHECK(*p.m.decode == Approx(100));
  CHECK(p.m.icl_ms.size() == 15);
}

TEST_CASE("reasoning then content: both are output, TTFO is the first content") {
  const Seen p = play([](StreamShape& s) { s.reasoning_events = 5; });
  CHECK(*p.m.ttft_ms == 100);
  CHECK(*p.m.ttfo_ms == 150);
  CHECK(*p.m.think_ms == 50);
  CHECK(*p.m.decode == Approx(100));
  CHECK(p.r.output.reasoning_events == 5);
  CHECK(p.r.output.content_events == 11);
  const Seen all = play([](StreamShape& s) { s.reasoning_events = 16; });
  CHECK_FALSE(all.m.ttfo_ms);
  CHECK(*all.m.decode == Approx(100));
}

TEST_CASE("tool calls are output") {
  const Seen p = play([](StreamShape& s) { s.tool_events = 4; });
  CHECK(p.events(EventKind::kTool) == 4);
  CHECK(p.r.output.finish_reason == "tool_calls");
  CHECK(*p.m.decode == Approx(100));
}

TEST_CASE("missing usage is estimated and says so; wrong usage is a mismatch") {
  const Seen missing = play([](StreamShape& s) { s.usage = false; });
  CHECK(missing.r.ok());
  CHECK(missing.r.n_tokens == 16);
  CHECK_FALSE(missing.r.counts_exact());
  CHECK(missing.r.has_flag("usage_missing"));
  for (const int error : {3, -3}) {
    const Seen wrong = play([&](StreamShape& s) { s.usage_error = error; });
    CHECK(wrong.r.n_tokens == 16 + error);
    CHECK(wrong.r.has_flag("count_mismatch"));
  }
  const Seen ids = play([](StreamShape& s) { s.usage_error = -1, s.token_ids = true; });
  CHECK(ids.r.has_flag("token_ids_differ_from_usage"));
}

TEST_CASE("an early stop is measured over what came, and flagged") {
  const Seen p = play([](StreamShape& s) { s.stop_after = 9; });
  CHECK(p.r.output.finish_reason == "stop");
  CHECK(p.r.n_tokens == 9);
  CHECK(*p.m.decode == Approx(100));
  CHECK(p.r.has_flag("short_output"));
}

TEST_CASE("a stall is in the rate and in the longest gap") {
  const Seen p = play([](StreamShape& s) { s.stall_after_event = 8, s.stall_ms = 150; });
  CHECK(*max_of(p.m.icl_ms) == 160);
  CHECK(*p.m.decode == Approx(15 / 0.300));
  CHECK(*p.m.e2e_ms == 400);
}

TEST_CASE("a reset and an error keep what came before, and count as failures") {
  const Seen reset = play([](StreamShape& s) { s.break_after_event = 5; });
  CHECK(reset.r.status == Status::kTruncated);
  CHECK(reset.events(EventKind::kContent) == 5);
  const Seen error = play([](StreamShape& s) { s.error_after_event = 5; });
  CHECK(error.r.status == Status::kStreamError);
  CHECK(error.r.error == "scripted failure");
  CHECK(error.events(EventKind::kContent) == 5);
}

TEST_CASE("keep-alive comments are seen, and are neither answer nor token") {
  const Seen p = play([](StreamShape& s) { s.comment_every_ms = 30; });
  CHECK(p.events(EventKind::kComment) == 3);
  CHECK(*p.m.ttfb_ms == 30);
  CHECK(*p.m.ttfr_ms == 100);
  CHECK(*p.m.ttft_ms == 100);
}

TEST_CASE("CRLF, one byte a read, usage on the finish event, no [DONE]: the same numbers") {
  const std::string want = made::facts(play([](StreamShape&) {}).r);
  CHECK(made::facts(play([](StreamShape& s) { s.crlf = true; }).r) == want);
  const Seen bytes = play([](StreamShape& s) { s.byte_by_byte = true; });
  CHECK(made::facts(bytes.r) == want);
  CHECK(bytes.r.reads.size() > 1000);
  CHECK(*bytes.m.decode == Approx(100));
  for (const Seen& p : {play([](StreamShape& s) { s.usage_on_finish = true; }), play([](StreamShape& s) { s.done = false; })}) {
    CHECK(p.r.ok());
    CHECK(p.r.token_count_source == "usage");
    CHECK(*p.m.decode == Approx(100));
  }
}

TEST_CASE("events that leave together share a read, a stamp and nothing else") {
  const Seen p = play([](StreamShape& s) { s.events_per_write = 4; });
  CHECK(p.r.reads.size() == 5);  // 16 tokens, finish, usage, [DONE]
  CHECK(*p.m.ttft_ms == 130);
  CHECK(p.m.zero_gaps == 12);
  CHECK(*p.m.decode_ref == Approx(15 / 0.120));
}

TEST_CASE("scripts from a file: chunks in order, one end each, unknown things refused") {
  const auto parsed = [](const char* text) { return scripts_from_json(*json::parse(text, "test"), "test"); };
  const auto one = parsed(R"([{"at_ms": 1, "bytes": ": hi\n\n"}, {"at_ms": 2.5, "json": {"a": 1}}, {"at_ms": 3, "end": "reset"}])");
  REQUIRE(one);
  REQUIRE(one->size() == 1);
  CHECK((*one)[0].chunks[1].bytes == "data: {\"a\":1}\n\n");
  CHECK((*one)[0].chunks[2].what == Chunk::What::kReset);
  CHECK(parsed(R"([[{"at_ms": 1, "bytes": "x"}], [{"at_ms": 1, "bytes": "y", "byte_by_byte": true}]])")->size() == 2);
  for (const char* bad : {"{}", "[]", R"([{"at_ms": 1}])", R"([{"at_ms": 1, "bytes": "x", "end": "close"}])", R"([{"at_ms": 1, "end": "explode"}])",
                          R"([{"at_ms": 2, "bytes": "x"}, {"at_ms": 1, "bytes": "y"}])", R"([{"at_ms": -1, "bytes": "x"}])"}) {
    CHECK_MESSAGE(parsed(bad).error().code == Code::kUsage, bad);
  }
}
