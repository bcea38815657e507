// Whole runs against the scripted server: what is measured is what was played.
#include <atomic>

#include "tests/unit/bench/fixture.h"

using namespace dsf;
using namespace dsf::bench;
using namespace dsf::bench::test;

TEST_CASE("a pass of 36 requests: complete, hashed as published, computed again byte for byte") {
  const auto server = serve(quick());
  const TempDir dir;
  const auto ran = run(plan_for(*server, dir / "a", "1-8", 8));
  CHECK(valid(*ran));
  REQUIRE(ran->summary.passes.size() == 1);
  const Pass& pass = ran->summary.passes[0];
  CHECK(pass.ok == 36);
  CHECK(pass.pass_sha256[0] == "101fc23909ebfe4c5189907b245bd4dbe1ae96341b4429f683601e547471fb8c");
  CHECK(pass.cache_evidence == "usage");
  CHECK(pass.thinking_check == "verified");
  // On a busy machine, or under a sanitizer, the client itself may be the limit.
  for (const auto& cell : pass.cells) CHECK((cell.eligible || cell.cpu_fraction > 0.8));
  CHECK(weight_digests(ran->summary.run).at("dsf.checkpoint_sha256") == std::string(64, 'c'));
  const std::string before = text_of(dir / "a/summary.json");
  REQUIRE(write_derived(dir / "a"));
  CHECK(text_of(dir / "a/summary.json") == before);
  for (const char* name : {"run.json", "table.md", "matrix.csv", "requests.csv", "plots/decode.svg", "plots/prefill.svg", "plots/data.tsv", "SHA256SUMS"}) {
    CHECK(std::filesystem::file_size(dir.path() / "a" / name) > 0);
  }
  retime(*ran, 5);
  for (const auto& cell : ran->summary.passes[0].cells) CHECK(cell.decode);
  CHECK(*ran->summary.passes[0].cell(1)->decode == doctest::Approx(200));
}

TEST_CASE("what was played is what is recorded, whatever its shape") {
  struct Case {
    const char* name;
    void (*set)(StreamShape&);
  };
  const Case cases[] = {{"plain", [](StreamShape&) {}},
                        {"role first", [](StreamShape& s) { s.role_ms = 1; }},
                        {"bundled", [](StreamShape& s) { s.tokens_per_event = 3, s.first_event_tokens = 4; }},
                        {"token ids", [](StreamShape& s) { s.tokens_per_event = 3, s.first_event_tokens = 4, s.token_ids = true; }},
                        {"continuous usage", [](StreamShape& s) { s.tokens_per_event = 2, s.continuous_usage = true; }},
                        {"tool calls", [](StreamShape& s) { s.tool_events = 3; }},
                        {"comments", [](StreamShape& s) { s.comment_every_ms = 1; }},
                        {"crlf", [](StreamShape& s) { s.crlf = true; }},
                        {"byte by byte", [](StreamShape& s) { s.byte_by_byte = true; }},
                        {"usage on finish", [](StreamShape& s) { s.usage_on_finish = true; }},
                        {"no done", [](StreamShape& s) { s.done = false; }}};
  for (const auto& c : cases) {
    INFO(c.name);
    StreamShape shape = quick();
    c.set(shape);
    const auto server = serve(shape);
    const TempDir dir;
    const auto ran = run(plan_for(*server, dir / "a", "2"));
    CHECK(valid(*ran));
    const auto played = server->played();
    REQUIRE(played.size() >= 2);
    for (const auto& r : ran->data.requests) {
      CHECK(r.ok());
      CHECK(r.n_tokens == 16);
      CHECK(r.usage.prompt == 463);
      CHECK(r.t.first_token > r.t.release);
    }
    const std::string expected = shape.token_ids ? "token_ids" : shape.continuous_usage ? "usage_delta" : "uniform";
    CHECK(ran->summary.passes[0].weight_source == expected);
    if (shape.token_ids) CHECK(ran->data.requests[0].events[0].tok == 4);
  }
}

TEST_CASE("reasoning is output: thinking off that thinks is a mismatch, effort 75 that thinks is verified") {
  StreamShape shape = quick();
  shape.reasoning_events = 4;
  const auto server = serve(shape);
  const TempDir dir;
  const auto off = run(plan_for(*server, dir / "off", "1"));
  CHECK(off->outcome.code == Code::kNo);
  CHECK(mentions(off->summary.reasons, "thinking_mismatch"));
  Plan plan = plan_for(*server, dir / "on", "1");
  plan.settings.thinkings = {"75"};
  const auto on = run(plan);
  CHECK(on->outcome.code == Code::kOk);
  CHECK(on->summary.passes[0].thinking_check == "verified");
  CHECK(on->data.requests[0].output.reasoning_events == 4);
  CHECK(on->data.requests[0].t.first_content >= on->data.requests[0].t.first_token);
}

TEST_CASE("failures are counted, never retried, and make the cell incomplete") {
  for (const char* kind : {"reset", "error", "503"}) {
    INFO(kind);
    const std::string what = kind;
    ScriptedOptions options;
    options.identity = {{"checkpoint_sha256", std::string(64, 'c')}};
    std::atomic<int> measured{0};
    auto server = ScriptedServer::start(options, [&](const json::Value& body, int) {
      StreamShape s = quick();
      s.max_tokens = static_cast<int>(body.find("max_tokens")->to_i64().value_or(0));
      if (s.max_tokens == 16 && measured.fetch_add(1) == 1) {
        if (what == "reset") s.break_after_event = 5;
        if (what == "error") s.error_after_event = 5;
        if (what == "503") return Script{503, {{"Content-Type", "application/json"}}, {{0, "{\"error\":\"busy\"}"}}, 0};
      }
      return make_script(s);
    });
    REQUIRE(server);
    const TempDir dir;
    const auto ran = run(plan_for(**server, dir / "a"));
    CHECK(measured == 3);
    CHECK(ran->outcome.code == Code::kRemote);
    CHECK(mentions(ran->summary.reasons, "requests_failed"));
    const Cell& c2 = *ran->summary.passes[0].cell(2);
    CHECK_FALSE(c2.complete);
    CHECK_FALSE(c2.eligible);
    CHECK(c2.ok == 1);
    CHECK(ran->summary.passes[0].cell(1)->eligible);
    CHECK(ran->outcome.table.find("(") != std::string::npos);
  }
}

TEST_CASE("missing, wrong and cached counts make a run invalid, each under its name") {
  struct Case {
    const char* reason;
    void (*set)(StreamShape&);
  };
  const Case cases[] = {{"estimated_counts", [](StreamShape& s) { s.usage = false; }},
                        {"count_mismatch", [](StreamShape& s) { s.usage_error = 3; }},
                        {"count_mismatch", [](StreamShape& s) { s.usage_error = -3; }},
                        {"contaminated", [](StreamShape& s) { s.cached_tokens = 448; }}};
  for (const auto& c : cases) {
    INFO(c.reason);
    StreamShape shape = quick();
    c.set(shape);
    const auto server = serve(shape);
    const TempDir dir;
    const auto ran = run(plan_for(*server, dir / "a", "1"));
    CHECK(ran->outcome.code == Code::kNo);
    CHECK(mentions(ran->summary.reasons, c.reason));
    CHECK_FALSE(ran->summary.passes[0].cells[0].eligible);
  }
}

TEST_CASE("a strict server that knows no extension still gives a full pass, without a claim about the mode") {
  ScriptedOptions options;
  options.strict = true;
  options.identity = {{"checkpoint_sha256", "x"}};
  const auto server = serve(quick(), options);
  const TempDir dir;
  Plan plan = plan_for(*server, dir / "a");
  plan.settings.thinkings = {"75"};
  const auto ran = run(plan);
  CHECK(valid(*ran));
  CHECK(ran->summary.passes[0].ok == 3);
  CHECK(ran->summary.passes[0].thinking_check == "unverified");
}

TEST_CASE("compare accepts two runs of the same thing and refuses every difference by name") {
  const auto server = serve(quick());
  const TempDir dir;
  const auto a = run(plan_for(*server, dir / "a"));
  const auto b = run(plan_for(*server, dir / "b"));
  CHECK(refusals(*a, *b).empty());
  const auto good = compare({&a->summary, &b->summary}, {});
  CHECK(good->markdown.find("ratio") != std::string::npos);

  const auto against = [&](const char* name, auto change) {
    Plan plan = plan_for(*server, dir / name);
    change(plan);
    return refusals(*a, *run(plan));
  };
  CHECK(mentions(against("seed", [](Plan& p) { p.settings.seed = 2; }), "setting seed is 1 and 2"));
  CHECK(mentions(against("seed2", [](Plan& p) { p.settings.seed = 2; }), "prompt hashes of repeat 0 differ"));
  CHECK(mentions(against("cap", [](Plan& p) { p.settings.output_tokens = 15; }), "completion tokens differ, first in decode/off/r0/c1/s0: 16 and 15"));
  CHECK(mentions(against("temperature", [](Plan& p) { p.settings.temperature = 0.5; }), "setting temperature is 0.0 and 0.5"));
  CHECK(mentions(against("order", [](Plan& p) { p.settings.order = "desc"; }), "setting order"));
  CHECK(mentions(against("levels", [](Plan& p) { p.settings.levels = {1}; }), "setting levels"));
  CHECK(mentions(against("mode", [](Plan& p) { p.settings.thinkings = {"75"}; }), "no pass in common"));

  ScriptedOptions other;
  other.identity = {{"checkpoint_sha256", std::string(64, 'd')}};
  const auto second = serve(quick(), other);
  const auto weights = run(plan_for(*second, dir / "weights"));
  CHECK(mentions(refusals(*a, *weights), "weights: dsf.checkpoint_sha256 is ccc"));
  CompareOptions vouched;
  vouched.same_weights = true;
  CHECK(refusals(*a, *weights, vouched).empty());

  StreamShape longer = quick();
  longer.prompt_tokens = 464;
  const auto third = serve(longer);
  CHECK(mentions(refusals(*a, *run(plan_for(*third, dir / "prompt"))), "prompt tokens differ, first in decode/off/r0/c1/s0: 463 and 464"));
}

TEST_CASE("one changed prompt byte in the raw records is found") {
  const auto server = serve(quick());
  const TempDir dir;
  const auto a = run(plan_for(*server, dir / "a"));
  auto b = run(plan_for(*server, dir / "b"));
  b->data.requests[1].prompt_sha256[0] = b->data.requests[1].prompt_sha256[0] == '0' ? '1' : '0';
  b->summary = *summarize(b->data);
  CHECK(mentions(refusals(*a, *b), "first in decode/off/r0/c2/s0"));
}

TEST_CASE("an early stop refuses the comparison, even when both stop alike") {
  StreamShape shape = quick();
  shape.stop_after = 12;
  const auto server = serve(shape);
  const TempDir dir;
  const auto a = run(plan_for(*server, dir / "a"));
  const auto b = run(plan_for(*server, dir / "b"));
  CHECK(a->data.requests[0].has_flag("short_output"));
  CHECK(mentions(refusals(*a, *b), "stopped before the cap"));
}

TEST_CASE("a campaign shows every engine and mode in one table") {
  const auto server = serve(quick());
  const TempDir dir;
  Plan decode = plan_for(*server, dir / "d");
  Plan prefill = plan_for(*server, dir / "p", "1-2", 1);
  const auto d = run(decode), p = run(prefill);
  CHECK(p->summary.passes[0].phase == "prefill");
  CHECK(p->summary.passes[0].best_prefill() != nullptr);
  const std::string report = campaign_report({&d->summary, &p->summary});
  CHECK(report.find("| test | off | ") != std::string::npos);
  CHECK(report.find("(C") != std::string::npos);
  CHECK(report.find("6 of 6 planned requests") != std::string::npos);
}

TEST_CASE("a writer that was killed leaves a readable prefix") {
  const auto server = serve(quick());
  const TempDir dir;
  const auto ran = run(plan_for(*server, dir / "a"));
  const std::string raw = text_of(dir / "a/raw.jsonl.zst");
  size_t last = 0;
  for (const size_t keep : {raw.size() * 7 / 8, raw.size() * 3 / 4, raw.size() / 2}) {
    std::ofstream(dir / "a/raw.jsonl.zst", std::ios::binary) << raw.substr(0, keep);
    const auto data = load_run(dir / "a");
    REQUIRE(data);
    CHECK(data->state == "killed");
    const auto outcome = write_derived(dir / "a");
    REQUIRE(outcome);
    CHECK(outcome->code == Code::kNo);
    last = data->requests.size();
  }
  CHECK(last < ran->data.requests.size());
}

TEST_CASE("a result is never overwritten; unknown models and dead servers have their codes") {
  const auto server = serve(quick());
  const TempDir dir;
  std::ofstream(dir / "x") << "x";
  Plan plan = plan_for(*server, dir.path());
  CHECK(run_plan(plan).error().cls == "output_exists");
  plan = plan_for(*server, dir / "a");
  plan.target.model = "other";
  CHECK(run_plan(plan).error().code == Code::kRefused);
  CHECK_FALSE(std::filesystem::exists(dir / "a"));
  plan.target.base_url = "http://127.0.0.1:1/v1";
  CHECK(run_plan(plan).error().code == Code::kRemote);
}

TEST_CASE("thresholds fail a run whose number is too low or absent") {
  const auto server = serve(quick());
  const TempDir dir;
  Plan plan = plan_for(*server, dir / "a");
  plan.gates.fail_over = {"ttft.off.c1.median_ms=600000"};
  CHECK(valid(*run(plan)));
  plan.gates.fail_over.clear();
  plan.out = dir / "b";
  plan.gates.fail_under = {"decode.off.c1=1000000"};
  CHECK(run(plan)->outcome.code == Code::kNo);
  plan.out = dir / "c";
  plan.gates.fail_under = {"decode.75.c1=1"};
  CHECK(run(plan)->outcome.code == Code::kNo);
}

TEST_CASE("open loop: requests go out by the clock, not by answers") {
  const auto server = serve(quick());
  const TempDir dir;
  Plan plan = plan_for(*server, dir / "a", "1", 4);
  plan.rate.kind = "constant";
  plan.rate.rate = 500;
  plan.rate.requests = 20;
  schedule_rate(plan.rate, 1);
  const auto outcome = run_plan(plan);
  REQUIRE(outcome);
  const auto data = load_run(dir / "a");
  REQUIRE(data->requests.size() == 20);
  for (const auto& r : data->requests) {
    CHECK(r.ok());
    CHECK(*r.t.release >= *r.t.scheduled);
  }
  CHECK(*data->requests[19].t.scheduled - *data->requests[0].t.scheduled == 38'000'000);
  CHECK(outcome->table.find("release lag") != std::string::npos);
}
