// Random streams, cut at random: what is measured depends on the bytes and on when the last byte of an event came, on nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tools/bench/made_stream.h"
#include "tools/bench/metrics.h"

using namespace dsf;
using namespace dsf::bench;
using namespace dsf::bench::made;

namespace {

using Random = std::mt19937_64;

int pick(Random& random, int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); }

std::string random_text(Random& random) {
  static const std::vector<std::string> kParts = {"a", " word", "\n", "\"", "\\", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "data: ", "\t", "[DONE]", "\r"};
  std::string out;
  for (int i = 1 + pick(random, 4); i > 0; --i) out += kParts[static_cast<size_t>(pick(random, static_cast<int>(kParts.size())))];
  return out;
}

// One payload as an event: any line end, a space or none, one data line or one a JSON line, a comment or a field before it.
std::string as_event(Random& random, const json::Value& payload, const std::string& end) {
  std::string lines = pick(random, 4) == 0 ? json::dump(payload, json::Style::kPretty) : json::dump(payload);
  std::string out;
  if (pick(random, 6) == 0) out += ": keepalive" + end + (pick(random, 2) == 0 ? end : "");
  if (pick(random, 8) == 0) out += "id: 7" + end;
  const std::string field = pick(random, 2) == 0 ? "data: " : "data:";
  return out + field + replaced(lines, "\n", end + field) + end + end;
}

struct Trace {
  std::string bytes;
  int64_t max_tokens = 0;
};

Trace random_trace(Random& random) {
  static const std::vector<std::string> kEnds = {"\n", "\r\n", "\r"};
  const std::string end = kEnds[static_cast<size_t>(pick(random, 3))];
  const int weights = pick(random, 3);  // token ids, running usage, neither
  Trace out;
  if (pick(random, 3) == 0) out.bytes += "\xEF\xBB\xBF";
  const auto add = [&](const json::Value& v) { out.bytes += as_event(random, v, end); };
  const auto usage = [&] { return json::Object{{"prompt_tokens", 40}, {"completion_tokens", out.max_tokens}, {"total_tokens", 40 + out.max_tokens}}; };
  if (pick(random, 2) == 0) add(json::Object{{"choices", json::Array{json::Object{{"index", 0}, {"delta", json::Object{{"role", "assistant"}, {"content", ""}}}}}}});
  for (int k = 1 + pick(random, 12); k > 0; --k) {
    const int n = 1 + pick(random, 4), kind = pick(random, 4);
    out.max_tokens += n;
    json::Value delta = json::Value::object();
    if (kind == 0 || kind == 3) delta.set("reasoning_content", random_text(random));
    if (kind == 1 || kind == 3) delta.set("content", random_text(random));
    if (kind == 2) delta.set("tool_calls", json::Array{json::Object{{"index", 0}, {"function", json::Object{{"arguments", random_text(random)}}}}});
    json::Value choice = json::Object{{"index", 0}, {"delta", std::move(delta)}};
    if (weights == 0) choice.set("token_ids", json::Array(static_cast<size_t>(n), json::Value(pick(random, 100'000))));
    json::Value payload = json::Object{{"choices", json::Array{std::move(choice)}}};
    if (weights == 1) payload.set("usage", usage());
    add(payload);
  }
  if (pick(random, 8) == 0) add(json::Object{{"error", json::Object{{"message", "made failure"}}}});
  add(json::Object{{"choices", json::Array{json::Object{{"index", 0}, {"delta", json::Object{}}, {"finish_reason", "length"}}}}});
  if (pick(random, 6) != 0) add(json::Object{{"choices", json::Array{}}, {"usage", usage()}});
  if (pick(random, 6) != 0) out.bytes += "data: [DONE]" + end + end;
  if (pick(random, 8) == 0) out.bytes.resize(out.bytes.size() - static_cast<size_t>(pick(random, static_cast<int>(std::min<size_t>(out.bytes.size(), 30)))));
  return out;
}

std::vector<size_t> random_cuts(Random& random, size_t n_bytes, int largest) {
  std::vector<size_t> sizes;
  for (size_t left = n_bytes; left > 0; left -= std::min(left, sizes.back())) sizes.push_back(static_cast<size_t>(1 + pick(random, largest)));
  return sizes;
}

// The same record with event k at k ms, whenever its read was.
Request at_canonical_times(Request r) {
  r.t.first_token = r.t.last_token = r.t.first_content = std::nullopt;
  for (size_t k = 0; k < r.events.size(); ++k) {
    EventRow& e = r.events[k];
    e.t = static_cast<int64_t>(k + 1) * 1'000'000;
    if (!is_token(e.kind)) continue;
    if (!r.t.first_token) r.t.first_token = e.t;
    if (!r.t.first_content && e.kind != EventKind::kReasoning) r.t.first_content = e.t;
    r.t.last_token = e.t;
  }
  return r;
}

std::string metrics_text(const Request& raw) {
  const Request r = at_canonical_times(raw);
  const RequestMetrics m = request_metrics(r);
  const Request* one = &r;
  const LevelMetrics level = level_metrics({&one, 1});
  std::string out;
  const auto add = [&](const std::optional<double>& v) { out += (v ? json::format_double(*v) : "-") + " "; };
  for (const auto& v : {m.ttft_ms, m.ttfo_ms, m.e2e_ms, m.decode, m.decode_ref, m.tpot_ms, m.tokens_per_event, m.prefill, level.span, level.all, level.sum, level.prefill}) add(v);
  for (const double v : m.icl_ms) add(v);
  for (const auto& v : m.itl_ms) out += json::format_double(v.value) + "*" + json::format_double(v.weight) + " ";
  return out + m.why_no_decode;
}

}  // namespace

TEST_CASE("property: however a random stream is cut into reads, record and metrics are the same, and every event has the stamp of its last byte") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const Trace trace = random_trace(random);
    // A byte a read: the read index of an event is the offset of its last byte.
    const Request bytewise = request_of(capture_split(trace.bytes, std::vector<size_t>(trace.bytes.size(), 1)), trace.max_tokens);
    const std::string want = facts(bytewise), want_metrics = metrics_text(bytewise);
    for (const int largest : {3, 40, 5000}) {
      const std::vector<size_t> sizes = random_cuts(random, trace.bytes.size(), largest);
      const Capture capture = capture_split(trace.bytes, sizes);
      const Request r = request_of(capture, trace.max_tokens);
      CHECK(facts(r) == want);
      CHECK(metrics_text(r) == want_metrics);
      REQUIRE(r.events.size() == bytewise.events.size());
      for (size_t k = 0; k < r.events.size(); ++k) {
        size_t read = 0;
        while (capture.reads[read].body_end <= static_cast<size_t>(bytewise.events[k].read)) ++read;
        CHECK(r.events[k].read == static_cast<int64_t>(read));
        CHECK(r.events[k].t == capture.reads[read].t);
      }
    }
  }
}

TEST_CASE("property: with known weights the rates of any level keep their order, and the peak is never below the mean") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<Request> requests;
    for (int i = 1 + pick(random, 8); i > 0; --i) {
      std::vector<Token> tokens;
      double t = 10 + pick(random, 50);
      for (int k = 2 + pick(random, 30); k > 0; --k) {
        tokens.push_back({t, 1 + pick(random, 4)});
        t += 1 + pick(random, 9);
      }
      requests.push_back(tokens_only(pick(random, 3), tokens, 100));
    }
    std::vector<const Request*> pointers;
    for (const auto& r : requests) pointers.push_back(&r);
    const LevelMetrics m = level_metrics(pointers);
    CHECK(*m.span <= *m.all);
    CHECK(*m.span <= *m.sum * (1 + 1e-12));  // streams that did not overlap cannot add up to more
    CHECK(*m.stream_min <= *m.stream_mean * (1 + 1e-12));
    CHECK(*m.stream_mean <= *m.stream_max * (1 + 1e-12));
    CHECK(m.window_coverage.value_or(0) <= 1);
  }
}
