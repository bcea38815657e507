#include "tools/serve/scheduler/engine_loop.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

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
  return r;
}

std::unique_ptr<EngineLoop> start(FakeEngine::Options options = {}, EngineLoopOptions loop = {}) {
  return std::make_unique<EngineLoop>(std::make_unique<FakeEngine>(std::move(options)), loop);
}

// Reads to the end; nothing when that takes more than ten seconds.
std::pair<size_t, std::optional<End>> drain(Stream& stream) {
  size_t n = 0;
  for (int i = 0; i < 1000; ++i) {
    const Batch batch = stream.wait(10'000);
    n += batch.tokens.size();
    if (batch.end) return {n, batch.end};
  }
  return {n, std::nullopt};
}

FakeEngine::Options slow_engine() {
  FakeEngine::Options options;
  options.max_model_len = 100000;
  options.on_step = [](std::span<const StepItem>) -> Result<void> {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {};
  };
  return options;
}

}  // namespace

TEST_CASE("many threads submit, read and cancel at once") {
  const auto loop = start();
  std::atomic<int> whole = 0, ended = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 12; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 10; ++i) {
          const auto stream = loop->submit(request({2 + t, 3 + i}, 20));
          if (!stream) continue;
          if ((t + i) % 4 == 0) (*stream)->cancel();
          const auto [n, end] = drain(**stream);
          if (end) ++ended;
          if (end && end->reason == EndReason::kLength && n == 20) ++whole;
        }
      });
    }
  }
  CHECK(ended == 120);
  CHECK(whole >= 90);
  CHECK(loop->wait_idle(1'000'000));
  CHECK(loop->counters().running == 0);
}

TEST_CASE("requests beyond the queue are refused as queue_full") {
  EngineLoopOptions options;
  options.max_running = 1;
  options.max_queue = 2;
  const auto loop = start(slow_engine(), options);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) {
    auto stream = loop->submit(request({2}, 5000));
    REQUIRE(stream.has_value());
    streams.push_back(*stream);
  }
  const auto refused = loop->submit(request({2}, 1));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().cls == "queue_full");
  for (const auto& stream : streams) stream->cancel();
  CHECK(loop->wait_idle(5'000'000));
  CHECK(loop->submit(request({2}, 1)).has_value());
}

TEST_CASE("drain lets what runs finish and refuses what is new; stop ends the rest") {
  const auto loop = start(slow_engine());
  const auto running = loop->submit(request({2}, 30)), endless = loop->submit(request({3}, 90000));
  loop->drain();
  CHECK(loop->submit(request({2}, 1)).error().cls == "draining");
  CHECK(loop->state() == EngineLoop::State::kDraining);
  const auto [n, end] = drain(**running);
  CHECK(n == 30);
  REQUIRE(end);
  CHECK(end->reason == EndReason::kLength);
  CHECK_FALSE(loop->wait_idle(10'000));
  loop->stop();
  const auto rest = drain(**endless).second;
  REQUIRE(rest);
  CHECK(rest->reason == EndReason::kDrained);
}

TEST_CASE("a failed engine ends everything and refuses what comes later") {
  FakeEngine::Options options;
  options.on_step = [](std::span<const StepItem>) -> Result<void> { return fail(Code::kBug, "engine", "device lost"); };
  const auto loop = start(options);
  const auto stream = loop->submit(request({2}, 30));
  const auto end = drain(**stream).second;
  REQUIRE(end);
  CHECK(end->reason == EndReason::kFailed);
  CHECK(loop->wait_idle(1'000'000));
  CHECK(loop->state() == EngineLoop::State::kFailed);
  CHECK(loop->failure().what == "device lost");
  CHECK(loop->submit(request({2}, 1)).error().cls == "failed");
}

TEST_CASE("a paused request goes on when its reader comes back") {
  EngineLoopOptions options;
  options.stream_capacity = 3;
  const auto loop = start({}, options);
  const auto stream = loop->submit(request({2}, 40));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK(loop->counters().running == 1);
  const auto [n, end] = drain(**stream);
  CHECK(n == 40);
  CHECK(end.has_value());
}
