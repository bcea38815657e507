// What stands beside the plain matrix: prompts of other kinds, closed and open loop, conversations, attempts, sweeps, probes.
#include <atomic>
#include <cmath>
#include <set>

#include "tests/unit/bench/fixture.h"
#include "tools/bench/session.h"
#include "tools/bench/stats.h"

using namespace dsf;
using namespace dsf::bench;
using namespace dsf::bench::test;

namespace {

size_t count_records(const std::filesystem::path& dir, std::string_view type) {
  const auto raw = read_raw(dir / "raw.jsonl.zst");
  REQUIRE(raw);
  return static_cast<size_t>(std::count_if(raw->records.begin(), raw->records.end(), [&](const json::Value& r) { return r.find("type")->as_string() == type; }));
}

// A server whose answer depends on the request and its number.
std::unique_ptr<ScriptedServer> serve_with(ScriptedServer::Scenario scenario, ScriptedOptions options = {}) {
  options.identity = {{"checkpoint_sha256", std::string(64, 'c')}};
  auto server = ScriptedServer::start(options, std::move(scenario));
  REQUIRE(server);
  return std::move(*server);
}

int cap_of(const json::Value& body) { return static_cast<int>(body.find("max_tokens")->to_i64().value_or(0)); }

}  // namespace

TEST_CASE("closed loop: more requests than streams, never more than C at once, and a steady window") {
  StreamShape shape = quick();
  shape.gap_ms = 1;
  const auto server = serve(shape);
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a", "1,3", 32);
  raw.requests_per_level = 9;
  const auto ran = run(plan_of(raw));
  CHECK(valid(*ran));
  const Cell& c3 = *ran->summary.passes[0].cell(3);
  CHECK(c3.planned == 9);
  CHECK(c3.ok == 9);
  CHECK(c3.runs[0].closed_loop);
  std::vector<std::pair<int64_t, int>> steps;
  for (const Request* r : c3.requests) {
    steps.emplace_back(*r->t.release, 1);
    steps.emplace_back(*r->t.end, -1);
  }
  std::sort(steps.begin(), steps.end());
  int live = 0, most = 0;
  for (const auto& [t, step] : steps) most = std::max(most, live += step);
  CHECK(most == 3);
  CHECK(ran->summary.passes[0].settings.find("requests_per_level")->to_i64() == 9);
  const auto plain = run(plan_for(*server, dir / "b", "1,3", 32));
  CHECK(mentions(refusals(*ran, *plain), "requests_per_level"));
}

TEST_CASE("the steady window is where C streams are live, less its trim") {
  std::vector<Request> requests(3);
  const std::pair<int64_t, int64_t> lives[] = {{0, 100}, {20, 120}, {100, 220}};  // ms
  for (size_t i = 0; i < 3; ++i) {
    Request& r = requests[i];
    for (int64_t t = lives[i].first; t <= lives[i].second; t += 10) r.events.push_back({t * 1'000'000, 0, EventKind::kContent, 1, 1});
    r.t.first_token = lives[i].first * 1'000'000;
    r.t.last_token = lives[i].second * 1'000'000;
    r.weight_source = "token_ids";
  }
  std::vector<const Request*> all;
  for (const auto& r : requests) all.push_back(&r);
  const auto whole = steady_window(all, 2, 0);
  REQUIRE(whole);
  CHECK(whole->lo == 20'000'000);
  CHECK(whole->hi == 120'000'000);
  CHECK(whole->tokens == 8 + 10 + 3);  // (20, 120]: 30..100, 30..120, 100..120
  CHECK(whole->rate() == doctest::Approx(210));
  CHECK(steady_window(all, 2, 0.1)->lo == 30'000'000);
  CHECK_FALSE(steady_window(all, 3, 0));
  CHECK_FALSE(steady_window(all, 2, 0.5));
}

TEST_CASE("a connection for every request: each is new, and the handshake is inside its time") {
  const auto server = serve(quick());
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a", "1-3");
  raw.new_connections = true;
  const auto ran = run(plan_of(raw));
  CHECK(valid(*ran));
  std::set<int64_t> ports;
  for (const auto& r : ran->data.requests) {
    CHECK_FALSE(r.http.conn_reused);
    CHECK(r.http.new_connects == 1);
    ports.insert(r.http.local_port);
  }
  CHECK(ports.size() == 6);
  const auto kept = run(plan_for(*server, dir / "b", "1-3"));
  CHECK(kept->data.requests[3].http.conn_reused);  // C3, slot 0: the connection of C1
  CHECK(mentions(refusals(*ran, *kept), "setting connections is \"new\" and \"keep-alive\""));
}

TEST_CASE("a level with failures is run again whole when asked; every attempt stays in the records") {
  std::atomic<int> measured{0};
  const auto server = serve_with([&](const json::Value& body, int) {
    StreamShape s = quick();
    s.max_tokens = cap_of(body);
    if (s.max_tokens == 16 && measured.fetch_add(1) == 1) s.error_after_event = 3;
    return make_script(s);
  });
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a");
  raw.retry_level = 2;
  const auto ran = run(plan_of(raw));
  CHECK(valid(*ran));
  const Cell& c2 = *ran->summary.passes[0].cell(2);
  CHECK(c2.complete);
  CHECK(c2.attempts == 2);
  CHECK(ran->summary.passes[0].cell(1)->attempts == 1);
  CHECK(ran->data.requests.size() == 3);
  CHECK(count_records(dir / "a", "request") == 5);
  CHECK(ran->outcome.table.find("attempt 2") != std::string::npos);
}

TEST_CASE("an interrupted run goes on where it was: finished levels are kept, nothing is measured twice") {
  const auto server = serve(quick());
  const TempDir dir;
  const auto whole = run(plan_for(*server, dir / "a", "1-3"));
  const std::string raw = text_of(dir / "a/raw.jsonl.zst");
  Plan plan = plan_for(*server, dir / "a", "1-3");
  plan.resume = true;
  for (const size_t keep : {raw.size() * 3 / 4, raw.size() / 2, raw.size() / 3}) {
    std::ofstream(dir / "a/raw.jsonl.zst", std::ios::binary) << raw.substr(0, keep);
    const auto before = load_run(dir / "a");
    REQUIRE(before->state == "killed");
    server->clear_played();
    const auto ran = run(plan);
    CHECK(valid(*ran));
    CHECK(ran->summary.state == "complete");
    CHECK(ran->summary.run_id == whole->summary.run_id);
    CHECK(ran->data.requests.size() == 6);
    CHECK(ran->summary.passes[0].pass_sha256 == whole->summary.passes[0].pass_sha256);
    CHECK(ran->summary.passes[0].token_check == "verified_offset");
    std::set<std::string> ids;
    for (const auto& r : ran->data.requests) ids.insert(r.id);
    CHECK(ids.size() == 6);
    CHECK(refusals(*whole, *ran).empty());
  }
  server->clear_played();
  CHECK(run(plan)->summary.state == "complete");  // nothing left to do
  CHECK(server->played().empty());
  plan.settings.seed = 2;
  CHECK(run_plan(plan).error().code == Code::kUsage);
  plan.settings.seed = 1;
  plan.target.label = "other";
  CHECK(run_plan(plan).error().what.find("label") != std::string::npos);
}

TEST_CASE("a run is not resumed against other weights") {
  const auto server = serve(quick());
  const TempDir dir;
  run(plan_for(*server, dir / "a"));
  const std::string raw = text_of(dir / "a/raw.jsonl.zst");
  std::ofstream(dir / "a/raw.jsonl.zst", std::ios::binary) << raw.substr(0, raw.size() / 2);
  ScriptedOptions other;
  other.identity = {{"checkpoint_sha256", std::string(64, 'd')}};
  const auto second = serve(quick(), other);
  Plan plan = plan_for(*second, dir / "a");
  plan.resume = true;
  CHECK(run_plan(plan).error().what.find("other weights") != std::string::npos);
}

TEST_CASE("prompts from a text file: the digest is in the key, slices start with the nonce") {
  const TempDir dir;
  std::ofstream(dir / "text") << "first line\n\nsecond line\r\nthird line\n";
  const auto source = PromptSource::load("file:" + (dir / "text").string());
  REQUIRE(source);
  const PromptKey key{1, 4, "decode", "off", 1, 0, 0, source->key_style()};
  const Prompt p = source->make(key, 0);
  CHECK(p.text.starts_with(nonce_line(key) + "\n"));
  CHECK(std::count(p.text.begin(), p.text.end(), '\n') == 6);
  CHECK(p.text.find("second line\n") != std::string::npos);
  CHECK(key.text().starts_with("bench-file/1|sha256="));
  PromptKey other = key;
  other.slot = 1;
  CHECK(source->make(other, 1).text != p.text);
  for (const char* bad : {"file:", "dataset:", "poem", "file:/nonexistent"}) CHECK_FALSE(PromptSource::load(bad));
}

TEST_CASE("a data set is replayed line by line, conversations up to their last user turn, and must have enough lines") {
  const TempDir dir;
  std::ofstream(dir / "set") << R"({"prompt": "one"})" << "\n"
                             << R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "two"}, {"role": "assistant", "content": "gone"}]})" << "\n"
                             << R"({"conversations": [{"from": "human", "value": "three"}, {"from": "gpt", "value": "gone"}]})" << "\n";
  const auto server = serve(quick());
  RawOptions raw = raw_for(*server, dir / "a");
  raw.prompt_style = "dataset:" + (dir / "set").string();
  const auto ran = run(plan_of(raw));
  CHECK(ran->summary.passes[0].ok == 3);
  std::set<std::string> seen;
  for (const auto& played : server->played()) {
    const auto body = json::parse(played.body, "body");
    seen.insert(json::dump(*body->find("messages")));
  }
  CHECK(seen.contains(R"([{"role":"user","content":"one"}])"));
  CHECK(seen.contains(R"([{"role":"system","content":"s"},{"role":"user","content":"two"}])"));
  CHECK(seen.contains(R"([{"role":"user","content":"three"}])"));
  CHECK(ran->summary.passes[0].settings.find("prompt_generator")->as_string().starts_with("bench-dataset/1|sha256="));
  raw.levels = "1-3";
  raw.out = (dir / "b").string();
  CHECK(run_plan(plan_of(raw)).error().cls == "duplicate_prompt");
  std::ofstream(dir / "bad") << R"({"messages": [{"role": "assistant", "content": "x"}]})";
  CHECK(PromptSource::load("dataset:" + (dir / "bad").string()).error().code == Code::kContent);
}

TEST_CASE("prompts are fitted to a number of tokens by the server's own tokenizer") {
  const auto server = serve(quick());  // counts words
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a");
  raw.input_tokens = 200;
  const auto ran = run(plan_of(raw));
  CHECK(ran->summary.passes[0].ok == 3);
  int fitted = 0;
  for (const auto& played : server->played()) {
    const auto body = json::parse(played.body, "body");
    const std::string& text = body->find("messages")->as_array()[0].find("content")->as_string();
    fitted += std::count(text.begin(), text.end(), ' ') + std::count(text.begin(), text.end(), '\n') + 1 == 200 ? 1 : 0;
  }
  CHECK(fitted == 3);
  ScriptedOptions none;
  none.tokenize = false;
  const auto without = serve(quick(), none);
  raw.base_url = without->base_url();
  raw.out = (dir / "b").string();
  CHECK(run_plan(plan_of(raw)).error().code == Code::kMissing);
}

TEST_CASE("arrivals: constant, poisson and gamma have the asked mean, the same for one seed; a ramp ends at its rate") {
  const auto gaps = [](const char* kind, double burstiness, double ramp_to, uint64_t seed) {
    RatePlan plan;
    plan.kind = kind;
    plan.rate = 100;
    plan.requests = 4001;
    plan.burstiness = burstiness;
    plan.ramp_to = ramp_to;
    schedule_rate(plan, seed);
    std::vector<double> out;
    for (size_t i = 1; i < plan.items.size(); ++i) out.push_back(static_cast<double>(plan.items[i].at_ns - plan.items[i - 1].at_ns) / 1e6);
    return out;
  };
  CHECK(*max_of(gaps("constant", 1, 0, 1)) == doctest::Approx(10));
  for (const double burstiness : {0.5, 1.0, 4.0}) {
    const auto g = gaps("gamma", burstiness, 0, 1);
    CHECK(*mean(g) == doctest::Approx(10).epsilon(0.1));  // 4000 gaps: about 2 % of deviation at shape 0.5
    CHECK(*stddev(g) == doctest::Approx(10 / std::sqrt(burstiness)).epsilon(0.1));
  }
  CHECK(*mean(gaps("poisson", 1, 0, 1)) == doctest::Approx(10).epsilon(0.1));
  CHECK(gaps("gamma", 0.5, 0, 1) == gaps("gamma", 0.5, 0, 1));
  CHECK(gaps("gamma", 0.5, 0, 1) != gaps("gamma", 0.5, 0, 2));
  const auto ramp = gaps("constant", 1, 400, 1);
  CHECK(ramp.front() == doctest::Approx(10));
  CHECK(ramp.back() == doctest::Approx(2.5).epsilon(0.01));
}

TEST_CASE("a recorded trace is replayed: its times, its prompts, and the releases of an earlier run") {
  const auto server = serve(quick());
  const TempDir dir;
  std::ofstream(dir / "trace") << R"({"at_ms": 20, "prompt": "second"})" << "\n" << R"({"at_ms": 5, "output_tokens": 3})" << "\n";
  RawOptions raw = raw_for(*server, dir / "a", "1", 4);
  raw.trace = (dir / "trace").string();
  const auto first = run_plan(plan_of(raw));
  REQUIRE(first);
  const auto data = load_run(dir / "a");
  REQUIRE(data->requests.size() == 2);
  CHECK(*data->requests[1].t.scheduled - *data->requests[0].t.scheduled == 15'000'000);
  CHECK(data->requests[0].max_tokens == 3);
  CHECK(data->requests[1].max_tokens == 4);
  CHECK(data->run.find("inputs")->as_array().size() == 1);
  raw.trace = (dir / "a/raw.jsonl.zst").string();
  raw.out = (dir / "b").string();
  REQUIRE(run_plan(plan_of(raw)));
  const auto again = load_run(dir / "b");
  REQUIRE(again->requests.size() == 2);
  CHECK(*again->requests[1].t.scheduled - *again->requests[0].t.scheduled == *data->requests[1].t.release - *data->requests[0].t.release);
  std::ofstream(dir / "empty") << "";
  raw.trace = (dir / "empty").string();
  CHECK(make_plan(raw, {0, nullptr}).error().code == Code::kUsage);
}

TEST_CASE("open loop goes on when the server closes connections") {
  const auto server = serve_with([](const json::Value& body, int index) {
    StreamShape s = quick();
    s.max_tokens = cap_of(body);
    if (s.max_tokens == 5 && index % 2 == 0) s.break_after_event = 2;
    return make_script(s);
  });
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a", "1", 5);
  raw.rate = "200";
  raw.requests = 12;
  raw.max_connections = 2;
  REQUIRE(run_plan(plan_of(raw)));
  const auto data = load_run(dir / "a");
  REQUIRE(data->requests.size() == 12);
  int ok = 0, cut = 0;
  for (const auto& r : data->requests) {
    ok += r.ok() ? 1 : 0;
    cut += r.status == Status::kTruncated ? 1 : 0;
  }
  CHECK(ok == 6);
  CHECK(cut == 6);
}

TEST_CASE("conversations carry what was said before, and report each turn") {
  ScriptedOptions options;
  const auto server = serve(quick(), options);
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a", "2", 4);
  raw.turns = 3;
  const auto outcome = run_plan(plan_of(raw));
  REQUIRE(outcome);
  const auto data = load_run(dir / "a");
  REQUIRE(data->requests.size() == 6);
  size_t longest = 0;
  for (const auto& played : server->played()) {
    const auto body = json::parse(played.body, "body");
    const auto& messages = body->find("messages")->as_array();
    longest = std::max(longest, messages.size());
    if (messages.size() == 3) CHECK(messages[1].find("content")->as_string() == " word word word word");
  }
  CHECK(longest == 5);
  CHECK(outcome->table.find("| 3 | 926 | 0 | 0.0 |") != std::string::npos);
  raw.rate = "5";
  CHECK(make_plan(raw, {0, nullptr}).error().code == Code::kUsage);
}

TEST_CASE("the latency floor is measured when asked, and stands in a column of its own") {
  const auto server = serve(quick());
  const TempDir dir;
  for (const char* kind : {"api", "generation"}) {
    INFO(kind);
    RawOptions raw = raw_for(*server, dir / kind, "1", 1);
    raw.latency_probe = kind;
    const auto ran = run(plan_of(raw));
    const json::Value& latency = *ran->data.run.find("probe")->find("latency");
    CHECK(latency.find("samples_ms")->as_array().size() == 5);
    const double floor_ms = *latency.find("floor_ms")->to_double();
    const Request& r = ran->data.requests[0];
    const double ttfr_ms = *request_metrics(r).ttfr_ms;
    const auto& value = ran->summary.passes[0].cell(1)->prefill_less_floor;
    if (ttfr_ms > floor_ms) CHECK(*value == doctest::Approx(463 * 1000 / (ttfr_ms - floor_ms)));
    else CHECK_FALSE(value);
  }
}

TEST_CASE("a server that cannot multiply fails the run when coherence is asked for") {
  for (const bool right : {true, false}) {
    const auto server = serve_with([right](const json::Value& body, int) {
      StreamShape s = quick();
      s.max_tokens = cap_of(body);
      Script script = make_script(s);
      if (right && body.find("messages")->as_array()[0].find("content")->as_string().starts_with("What is 17*23")) {
        script.chunks[0].bytes = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"391\"}}]}\n\n";
      }
      return script;
    });
    const TempDir dir;
    RawOptions raw = raw_for(*server, dir / "a", "1");
    raw.coherence = true;
    const auto ran = run(plan_of(raw));
    CHECK(mentions(ran->summary.reasons, "incoherent") == !right);
  }
}

TEST_CASE("warm-up: every level, or C1 until it settles; its records never count") {
  const auto server = serve(quick());
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a", "1-3");
  raw.skip_warmup = false;
  raw.warmup = "all";
  auto ran = run(plan_of(raw));
  CHECK(ran->summary.passes[0].planned == 6);
  CHECK(count_records(dir / "a", "request") == 12);
  raw.out = (dir / "b").string();
  raw.warmup = "steady";
  ran = run(plan_of(raw));
  CHECK(ran->summary.passes[0].planned == 6);
  const size_t warm = count_records(dir / "b", "request") - 6 - 3;
  CHECK(warm >= 3);
  CHECK(warm <= 10);
}

TEST_CASE("a sweep over lengths fits fixed cost and speed") {
  const auto fit = fit_line({{8211, 8460}, {16403, 16620}});  // ms; a published pair of this model
  REQUIRE(fit);
  CHECK(1000 / fit->slope == doctest::Approx(1003.9).epsilon(1e-4));
  CHECK(fit->offset == doctest::Approx(281).epsilon(0.01));
  CHECK_FALSE(fit_line({{1, 2}}));
  CHECK_FALSE(fit_line({{1, 2}, {1, 3}}));

  // TTFT of 5 ms and 1 ms for each 100 prompt bytes, told as tokens.
  const auto server = serve_with([](const json::Value& body, int) {
    StreamShape s = quick();
    s.max_tokens = cap_of(body);
    s.prompt_tokens = static_cast<int>(body.find("messages")->as_array()[0].find("content")->as_string().size());
    s.first_ms = 5 + s.prompt_tokens / 100.0;
    return make_script(s);
  });
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "sweep", "1", 1);
  raw.input_lines = "2,27,54";
  const auto plans = make_plans(raw, {0, nullptr});
  REQUIRE(plans);
  REQUIRE(plans->size() == 3);
  CHECK((*plans)[1].out == dir / "sweep/lines-27");
  std::vector<std::unique_ptr<Ran>> ran;
  std::vector<const Summary*> summaries;
  for (const auto& plan : *plans) {
    ran.push_back(run(plan));
    summaries.push_back(&ran.back()->summary);
  }
  const std::string report = campaign_report(summaries);
  CHECK(report.find("TTFT = t0 + p / R") != std::string::npos);
  CHECK(report.find("| test | off | ") != std::string::npos);
  raw.rate = "1,2";
  CHECK(make_plans(raw, {0, nullptr}).error().code == Code::kUsage);
}

TEST_CASE("draft acceptance comes from the engine's block in the stream, in whatever member it stands") {
  for (const char* block : {R"("tensorfold":{"rounds":39,"accepted":25})", R"("drafting":{"rounds":39,"tokens_per_round":1.641025641025641})"}) {
    const auto server = serve_with([block](const json::Value& body, int) {
      StreamShape s = quick();
      s.max_tokens = cap_of(body);
      Script script = make_script(s);
      std::string& usage = script.chunks[script.chunks.size() - 2].bytes;
      usage.insert(usage.find('{') + 1, std::string(block) + ",");
      return script;
    });
    const TempDir dir;
    const auto ran = run(plan_for(*server, dir / "a"));
    CHECK(*ran->summary.passes[0].cell(2)->tokens_per_round == doctest::Approx(64.0 / 39));
  }
}

TEST_CASE("the server's counters around a level: cache hits make a cell contaminated when usage says nothing") {
  ScriptedOptions options;
  options.prefix_cache = true;
  options.identity = {{"checkpoint_sha256", std::string(64, 'c')}};
  auto server = ScriptedServer::start(options, [](const json::Value& body, int) {
    StreamShape s = quick();
    s.max_tokens = cap_of(body);
    Script script = make_script(s);
    for (auto& chunk : script.chunks) {
      const size_t at = chunk.bytes.find(",\"prompt_tokens_details\":{\"cached_tokens\":0}");
      if (at != std::string::npos) chunk.bytes.erase(at, std::string_view(",\"prompt_tokens_details\":{\"cached_tokens\":0}").size());
    }
    return script;
  });
  REQUIRE(server);
  const TempDir dir;
  const auto cold = run(plan_for(**server, dir / "cold"));
  CHECK(valid(*cold));
  CHECK(cold->summary.passes[0].cache_evidence == "metrics");
  CHECK(cold->summary.passes[0].cell(2)->server.cache_hit_fraction == 0.0);
  const auto warm = run(plan_for(**server, dir / "warm"));  // the same seed on the same live server
  CHECK(mentions(warm->summary.reasons, "contaminated"));
  CHECK(warm->outcome.table.find("(cached)") != std::string::npos);
  RawOptions salted = raw_for(**server, dir / "allowed");
  salted.allow_cached = true;
  CHECK(valid(*run(plan_of(salted))));
}

TEST_CASE("an early first token in a prefill level is suspicious") {
  const auto server = serve(quick());
  const TempDir dir;
  auto ran = run(plan_for(*server, dir / "a", "4", 1));
  const auto suspicious = [&](int64_t first_of_slot_0_ms) {
    for (auto& r : ran->data.requests) r.t.first_token = r.t.last_token = *r.t.release + (r.slot == 0 ? first_of_slot_0_ms : 100) * 1'000'000;
    const auto summary = summarize(ran->data);
    const auto& flags = summary->passes[0].cell(4)->flags;
    return std::find(flags.begin(), flags.end(), "suspicious_ttft") != flags.end();
  };
  CHECK(suspicious(39));
  CHECK_FALSE(suspicious(41));
}

TEST_CASE("compare: an engine's own extra members are declared, repeats give an interval") {
  const auto server = serve(quick());
  const TempDir dir;
  RawOptions raw = raw_for(*server, dir / "a");
  raw.repeats = 2;
  const auto a = run(plan_of(raw));
  raw.out = (dir / "b").string();
  raw.extra_body = R"({"engine_flag": 1})";
  const auto other = run(plan_of(raw));
  CHECK(mentions(refusals(*a, *other), "setting extra_body"));
  raw.out = (dir / "c").string();
  raw.engine_only = {"engine_flag"};
  const auto declared = run(plan_of(raw));
  retime(*a, 5);
  retime(*declared, 4);
  CHECK(refusals(*a, *declared).empty());
  const auto c = compare({&a->summary, &declared->summary}, {});
  REQUIRE(c);
  CHECK(c->markdown.find("1.24") != std::string::npos);  // 5 and 5.1 against 4 and 4.1
  CHECK(c->markdown.find("[") != std::string::npos);
  CHECK(c->markdown.find("tokens per event / round") != std::string::npos);
  const json::Value& cell = c->json.find("cells")->as_array()[1];
  CHECK(cell.find("interval")->as_array().size() == 2);
}
