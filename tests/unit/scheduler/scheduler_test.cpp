#include "tools/serve/scheduler/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/scheduler/fake_engine.h"

using namespace dsf;
using namespace dsf::serve;
using dsf::test::FakeEngine;

namespace {

GenerationRequest request(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  r.sampling.seed = 5;
  return r;
}

std::vector<int32_t> sequence(int32_t first, int n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), first);
  for (int32_t& id : ids) id = 2 + id % 60;
  return ids;
}

// A scheduler over a fake engine, with a clock that only the test moves.
struct Bench {
  explicit Bench(FakeEngine::Options options = {}, SchedulerOptions scheduling = {}) : engine(std::move(options)) {
    scheduling.now_ns = [this] { return now; };
    scheduler = std::make_unique<Scheduler>(engine, std::move(scheduling));
  }
  std::shared_ptr<Stream> add(GenerationRequest r, size_t capacity = 1000) {
    auto stream = std::make_shared<Stream>(capacity, [] {});
    scheduler->add(std::move(r), stream);
    return stream;
  }
  bool step() {
    const auto ran = scheduler->step();
    return ran && *ran;
  }
  void run() {
    for (int i = 0; i < 10000 && step(); ++i) {
    }
  }
  int64_t now = 1000;
  FakeEngine engine;
  std::unique_ptr<Scheduler> scheduler;
};

struct Reply {
  std::vector<int32_t> ids;
  std::optional<End> end;
};
Reply read(Stream& stream) {
  Reply reply;
  const Batch batch = stream.wait(0);
  for (const Choice& c : batch.tokens) reply.ids.push_back(c.id);
  reply.end = batch.end;
  return reply;
}

std::vector<int32_t> alone(GenerationRequest r) {
  Bench bench;
  const auto stream = bench.add(std::move(r));
  bench.run();
  return read(*stream).ids;
}

}  // namespace

TEST_CASE("a reply does not depend on batch mates, chunk size or arrival") {
  std::vector<std::vector<int32_t>> want;
  for (int i = 0; i < 8; ++i) want.push_back(alone(request(sequence(i, 3 + 17 * i), 12)));
  for (const int64_t chunk : {1, 7, 32}) {
    SchedulerOptions scheduling;
    scheduling.prefill_chunk = chunk;
    Bench bench({}, scheduling);
    std::vector<std::shared_ptr<Stream>> streams;
    for (int i = 0; i < 8; ++i) {
      streams.push_back(bench.add(request(sequence(i, 3 + 17 * i), 12)));
      bench.step();
    }
    bench.run();
    for (size_t i = 0; i < 8; ++i) {
      const Reply reply = read(*streams[i]);
      CHECK(reply.ids == want[i]);
      REQUIRE(reply.end);
      CHECK(reply.end->reason == EndReason::kLength);
    }
    CHECK(bench.engine.open_sessions() == 0);
  }
}

TEST_CASE("running replies get a token in every step while a long prompt is read") {
  SchedulerOptions scheduling;
  scheduling.prefill_chunk = 8;
  Bench bench({}, scheduling);
  const auto talker = bench.add(request({5}, 200));
  bench.step();
  const auto reader = bench.add(request(sequence(0, 150), 4));
  for (int i = 0; i < 18; ++i) {
    CHECK(bench.step());
    CHECK(read(*talker).ids.size() == (i == 0 ? 2 : 1));
    CHECK(read(*reader).ids.empty());
  }
  bench.step();
  CHECK(read(*reader).ids.size() == 1);
}

TEST_CASE("a short prompt behind a long one answers after a step or two, and long prompts take turns") {
  FakeEngine::Options options;
  options.max_step_tokens = 8;
  SchedulerOptions scheduling;
  scheduling.prefill_chunk = 8;
  Bench bench(options, scheduling);
  const auto first = bench.add(request(sequence(0, 160), 1));
  const auto second = bench.add(request(sequence(9, 160), 1));
  for (int i = 0; i < 4; ++i) bench.step();
  const auto chat = bench.add(request(sequence(3, 6), 1));
  int steps = 0;
  while (!read(*chat).end && steps < 50) bench.step(), ++steps;
  CHECK(steps <= 3);
  int a = 0, b = 0;
  for (int i = 1; i < 60; ++i) {
    bench.step();
    if (a == 0 && read(*first).end) a = i;
    if (b == 0 && read(*second).end) b = i;
  }
  CHECK(a > 0);
  CHECK(std::abs(a - b) <= 1);  // not one after the other
}

TEST_CASE("a step never exceeds the token budget, and too many replies take turns") {
  FakeEngine::Options options;
  options.max_step_tokens = 3;
  options.on_step = [](std::span<const StepItem> items) -> Result<void> {
    size_t total = 0;
    for (const auto& item : items) total += item.tokens.size();
    CHECK(total <= 3);
    return {};
  };
  Bench bench(options);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(bench.add(request({2 + i}, 9)));
  for (int i = 0; i < 16; ++i) bench.step();
  for (const auto& stream : streams) {
    const size_t n = read(*stream).ids.size();
    CHECK(n >= 5);
    CHECK(n <= 7);
  }
}

TEST_CASE("no more than the limit run at once, the rest wait in order") {
  SchedulerOptions scheduling;
  scheduling.max_running = 2;
  Bench bench({}, scheduling);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(bench.add(request({2 + i}, 3)));
  bench.step();
  CHECK(bench.scheduler->counters().running == 2);
  CHECK(bench.scheduler->counters().waiting == 2);
  CHECK(streams[0]->wait(0).admitted);
  CHECK_FALSE(streams[2]->wait(0).admitted);
  for (int i = 0; i < 3; ++i) bench.step();
  CHECK(streams[2]->wait(0).admitted);
  bench.run();
  CHECK(read(*streams[3]).ids.size() == 3);
  // max_sessions of the engine limits as well.
  FakeEngine::Options options;
  options.max_sessions = 1;
  Bench narrow(options);
  narrow.add(request({3}, 2));
  narrow.add(request({4}, 2));
  narrow.step();
  CHECK(narrow.scheduler->counters().running == 1);
}

TEST_CASE("EOS, stop ids, min_tokens and ignore_eos end a reply where they should") {
  FakeEngine::Options options;
  options.script = [](std::span<const int32_t> context) {
    return context.size() == 3 ? 1 : context.size() == 5 ? 9 : 7;
  };
  const auto reply = [&](auto change) {
    Bench bench(options);
    GenerationRequest r = request({4}, 10);
    r.ignore_eos = false;
    change(r);
    const auto stream = bench.add(std::move(r));
    bench.run();
    return read(*stream);
  };
  Reply r = reply([](GenerationRequest&) {});
  CHECK(r.ids == std::vector<int32_t>{7, 7, 1});
  CHECK(r.end->reason == EndReason::kEos);
  r = reply([](GenerationRequest& q) { q.ignore_eos = true, q.stop_ids = {9}; });
  CHECK(r.ids == std::vector<int32_t>{7, 7, 1, 7, 9});
  CHECK(r.end->reason == EndReason::kStopToken);
  CHECK(r.end->stop_token == 9);
  r = reply([](GenerationRequest& q) { q.min_tokens = 4, q.sampling.temperature = 0; });
  REQUIRE(r.ids.size() >= 4);
  CHECK(r.ids[2] != 1);
  r = reply([](GenerationRequest& q) { q.max_tokens = 2; });
  CHECK(r.end->reason == EndReason::kLength);
  CHECK(r.ids.size() == 2);
}

TEST_CASE("the context limit ends a reply as length") {
  FakeEngine::Options options;
  options.max_model_len = 10;
  Bench bench(options);
  const auto stream = bench.add(request(sequence(0, 6), 100));
  bench.run();
  const Reply r = read(*stream);
  CHECK(r.ids.size() == 4);
  CHECK(r.end->reason == EndReason::kLength);
}

TEST_CASE("a cancelled request is gone after one step, also in the queue and while its prompt is read") {
  SchedulerOptions scheduling;
  scheduling.max_running = 1;
  scheduling.prefill_chunk = 4;
  Bench bench({}, scheduling);
  const auto reading = bench.add(request(sequence(0, 200), 5));
  const auto queued = bench.add(request({3}, 5));
  bench.step();
  CHECK(bench.scheduler->counters().running == 1);
  queued->cancel();
  reading->cancel();
  bench.step();
  CHECK(bench.scheduler->idle());
  CHECK(bench.engine.open_sessions() == 0);
  CHECK(read(*reading).end->reason == EndReason::kCancelled);
  CHECK(bench.scheduler->counters().prompt_tokens == 4);
}

TEST_CASE("deadlines end waiting and running requests") {
  SchedulerOptions scheduling;
  scheduling.max_running = 1;
  Bench bench({}, scheduling);
  GenerationRequest slow = request({3}, 100);
  slow.deadline_ns = 5000;
  GenerationRequest late = request({4}, 100);
  late.queue_deadline_ns = 2000;
  const auto running = bench.add(std::move(slow));
  const auto waiting = bench.add(std::move(late));
  bench.step();
  bench.now = 2500;
  bench.step();
  CHECK(read(*waiting).end->reason == EndReason::kTimedOut);
  CHECK_FALSE(read(*running).end);
  bench.now = 5000;
  bench.step();
  CHECK(read(*running).end->reason == EndReason::kTimedOut);
}

TEST_CASE("a reader that does not read pauses its own request only") {
  Bench bench;
  const auto slow = bench.add(request({3}, 50), 4);
  const auto fast = bench.add(request({4}, 50), 1000);
  for (int i = 0; i < 20; ++i) bench.step();
  CHECK(read(*fast).ids.size() == 20);
  CHECK(read(*slow).ids.size() == 4);
  bench.step();
  CHECK(read(*slow).ids.size() == 1);
  bench.run();
  read(*slow);
  bench.run();
  CHECK(read(*fast).end);
}

TEST_CASE("forced tokens follow their trigger, and a filter limits what comes after them") {
  struct OnlyTens final : TokenFilter {
    int left = 2;
    bool allowed(std::vector<int32_t>& out) override {
      out = {10, 20};
      return left > 0;
    }
    void commit(int32_t) override { --left; }
  };
  FakeEngine::Options options;
  options.script = [](std::span<const int32_t> context) { return context.size() == 2 ? 8 : 7; };
  Bench bench(options);
  GenerationRequest r = request({4}, 9);
  r.steering.active = true;
  r.steering.trigger = 8;
  r.steering.forced = {30, 31, 32};
  r.steering.filter = std::make_unique<OnlyTens>();
  const auto stream = bench.add(std::move(r));
  bench.run();
  const std::vector<int32_t> ids = read(*stream).ids;
  REQUIRE(ids.size() == 9);
  CHECK(std::vector<int32_t>(ids.begin(), ids.begin() + 5) == std::vector<int32_t>{7, 8, 30, 31, 32});
  CHECK(ids[5] % 10 == 0);
  CHECK(ids[6] % 10 == 0);
  CHECK(ids[7] == 7);
  // At once, when there is no trigger.
  Bench now(options);
  GenerationRequest at_once = request({4}, 4);
  at_once.steering.active = true;
  at_once.steering.forced = {30, 31};
  const auto second = now.add(std::move(at_once));
  now.run();
  CHECK(read(*second).ids == std::vector<int32_t>{30, 31, 7, 7});
}

TEST_CASE("prompt log-probabilities cover every prompt token but the first, whatever the chunk") {
  const auto prompt_logprobs = [](int64_t chunk) {
    SchedulerOptions scheduling;
    scheduling.prefill_chunk = chunk;
    Bench bench({}, scheduling);
    GenerationRequest r = request(sequence(0, 20), 1);
    r.prompt_logprobs = true;
    r.sampling.top_logprobs = 2;
    const auto stream = bench.add(std::move(r));
    bench.run();
    return stream->wait(0).prompt;
  };
  const auto whole = prompt_logprobs(32), pieces = prompt_logprobs(3);
  REQUIRE(whole.size() == 19);
  REQUIRE(pieces.size() == 19);
  const auto ids = sequence(0, 20);
  for (size_t i = 0; i < 19; ++i) {
    CHECK(whole[i].id == ids[i + 1]);
    CHECK(whole[i].logprob < 0);
    CHECK(whole[i].top.size() == 2);
    CHECK(whole[i].logprob == pieces[i].logprob);
  }
}

TEST_CASE("a request has left the counters before its consumer hears of the end") {
  SchedulerOptions scheduling;
  std::shared_ptr<Stream> stream;
  const Scheduler* scheduler = nullptr;
  int calls = 0;
  scheduling.before_ends = [&] {
    ++calls;
    CHECK(scheduler->counters().running == 0);
    CHECK_FALSE(stream->wait(0).end);
  };
  Bench bench({}, scheduling);
  scheduler = bench.scheduler.get();
  stream = bench.add(request({3}, 1));
  bench.step();
  CHECK(calls == 1);
  CHECK(read(*stream).end->reason == EndReason::kLength);
}

TEST_CASE("an engine error is the round's, and end_all hands it to every request") {
  FakeEngine::Options options;
  int calls = 0;
  options.on_step = [&](std::span<const StepItem>) -> Result<void> {
    if (++calls == 3) return fail(Code::kBug, "engine", "device lost");
    return {};
  };
  SchedulerOptions scheduling;
  scheduling.max_running = 1;
  Bench bench(options, scheduling);
  const auto a = bench.add(request({3}, 9)), b = bench.add(request({4}, 9));
  bench.step();
  bench.step();
  const auto failed = bench.scheduler->step();
  REQUIRE_FALSE(failed.has_value());
  bench.scheduler->end_all(EndReason::kFailed, failed.error());
  CHECK(read(*a).end->reason == EndReason::kFailed);
  CHECK(read(*b).end->error.what == "device lost");
  CHECK(bench.engine.open_sessions() == 0);
}

TEST_CASE("whoever chooses, the reply is the same, and logits are asked for only where they are needed") {
  std::vector<GenerationRequest> (*const requests)() = [] {
    std::vector<GenerationRequest> out;
    for (int i = 0; i < 6; ++i) out.push_back(request(sequence(i, 3 + 11 * i), 12));
    out[1].sampling.temperature = 0;
    out[2].sampling.top_p = 1;
    out[3].sampling.frequency_penalty = 0.5;
    out[4].sampling.top_logprobs = 2;
    out[5].min_tokens = 6;
    return out;
  };
  const auto replies = [&](bool chooses, int64_t& rows) {
    FakeEngine::Options options;
    options.chooses = chooses;
    options.on_step = [&](std::span<const StepItem> items) {
      for (const StepItem& item : items) rows += item.choose == nullptr && item.want_logits ? 1 : 0;
      return Result<void>{};
    };
    Bench bench(std::move(options));
    std::vector<std::shared_ptr<Stream>> streams;
    for (GenerationRequest& r : requests()) streams.push_back(bench.add(std::move(r)));
    bench.run();
    std::vector<std::vector<int32_t>> ids;
    for (const auto& stream : streams) ids.push_back(read(*stream).ids);
    return ids;
  };
  int64_t rows_here = 0, rows_there = 0;
  CHECK(replies(true, rows_there) == replies(false, rows_here));
  CHECK(rows_here == 6 * 12);
  CHECK(rows_there == 12 + 12 + 6);  // penalties, log-probabilities, the masked start
}

TEST_CASE("drafts change no reply: right ones, wrong ones, to the end of the reply and of the context") {
  const FakeEngine oracle({});
  // Greedy continuations that are wrong at every `wrong`-th place.
  const auto drafter = [&](size_t wrong) {
    return [&oracle, wrong](std::vector<int32_t> context) {
      std::vector<int32_t> ids;
      for (int i = 0; i < 5; ++i) {
        const auto row = oracle.logits_after(context);
        const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
        ids.push_back(context.size() % wrong == 0 ? (best + 1) % 64 : best);
        context.push_back(ids.back());
      }
      return ids;
    };
  };
  const auto replies = [&](int64_t speculative, size_t wrong, int64_t model_len, SchedulerCounters& counters) {
    FakeEngine::Options options;
    options.chooses = true;
    options.max_model_len = model_len;
    if (wrong > 0) options.draft = drafter(wrong);
    SchedulerOptions scheduling;
    scheduling.speculative = speculative;
    Bench bench(std::move(options), std::move(scheduling));
    std::vector<std::shared_ptr<Stream>> streams;
    for (int i = 0; i < 6; ++i) {
      GenerationRequest r = request(sequence(3 * i, 1 + 9 * i), 14 + i);
      r.ignore_eos = i % 2 == 0;
      r.sampling.temperature = i < 4 ? 0 : 1;
      if (i == 3) r.stop_ids = {7, 8, 9, 10, 11};
      if (i == 2) r.min_tokens = 5;
      streams.push_back(bench.add(std::move(r)));
    }
    bench.run();
    std::vector<std::pair<std::vector<int32_t>, EndReason>> out;
    for (const auto& stream : streams) {
      Reply reply = read(*stream);
      REQUIRE(reply.end);
      out.emplace_back(std::move(reply.ids), reply.end->reason);
    }
    counters = bench.scheduler->counters();
    CHECK(bench.engine.open_sessions() == 0);
    return out;
  };
  for (const int64_t model_len : {64, 256}) {
    SchedulerCounters plain, with;
    const auto want = replies(0, 0, model_len, plain);
    for (const size_t wrong : {1, 2, 3, 1000}) {
      for (const int64_t speculative : {1, 3, 16}) {
        CAPTURE(wrong);
        CAPTURE(speculative);
        CHECK(replies(speculative, wrong, model_len, with) == want);
        CHECK(with.drafted_tokens > 0);
        CHECK(std::accumulate(with.drafted_at.begin(), with.drafted_at.end(), int64_t{0}) == with.drafted_tokens);
        CHECK(std::accumulate(with.accepted_at.begin(), with.accepted_at.end(), int64_t{0}) == with.accepted_tokens);
        CHECK(std::is_sorted(with.accepted_at.rbegin(),
                             with.accepted_at.rend()));  // a draft counts only behind accepted ones
        CHECK(with.generated_tokens == plain.generated_tokens);
        if (wrong == 1) CHECK(8 * with.accepted_tokens < with.drafted_tokens);  // by luck, at temperature 1
        if (wrong == 1000) CHECK(with.accepted_tokens >= 5);
      }
    }
  }
}

TEST_CASE("min_tokens keeps an end from being chosen under a filter, unless nothing else is left") {
  struct OneThenEnd final : TokenFilter {
    int committed = 0;
    bool allowed(std::vector<int32_t>& out) override {
      out = committed == 0 ? std::vector<int32_t>{1, 10} : std::vector<int32_t>{1};
      return true;
    }
    void commit(int32_t) override { ++committed; }
  };
  FakeEngine::Options options;
  options.script = [](std::span<const int32_t>) { return 1; };
  Bench bench(options);
  GenerationRequest r = request({4}, 9);
  r.ignore_eos = false;
  r.min_tokens = 5;
  r.steering.active = true;
  r.steering.filter = std::make_unique<OneThenEnd>();
  const auto stream = bench.add(std::move(r));
  bench.run();
  const Reply reply = read(*stream);
  CHECK(reply.ids == std::vector<int32_t>{10, 1});
  CHECK(reply.end->reason == EndReason::kEos);
}
