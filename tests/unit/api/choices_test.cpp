// n > 1: choices of one prompt, each with a seed of its own.
#include <array>

#include "tests/unit/api/live_server.h"
#include "tools/serve/scheduler/sampler.h"

using namespace dsf;
using namespace dsf::test;

namespace {

std::string chat(int n, const std::string& extra) {
  return R"({"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,"max_tokens":12,"n":)" + std::to_string(n) +
         extra + "}";
}

std::string text_of(const json::Value& doc, int choice) {
  return at(doc, {"choices", choice, "message", "content"}).as_string();
}

}  // namespace

TEST_CASE("n choices are numbered, differ, and each is what its own seed gives alone") {
  const LiveServer live(babble());
  const json::Value doc = parse(live.post("/v1/chat/completions", chat(4, R"(,"seed":77)")).body);
  REQUIRE(at(doc, {"choices"}).as_array().size() == 4);
  for (int i = 0; i < 4; ++i) {
    CHECK(at(doc, {"choices", i, "index"}) == json::Value(i));
    CHECK(at(doc, {"choices", i, "finish_reason"}) == json::Value("length"));
    const std::string seed = std::to_string(serve::seed_of_choice(77, static_cast<uint64_t>(i)));
    const json::Value alone = parse(live.post("/v1/chat/completions", chat(1, R"(,"seed":)" + seed)).body);
    CHECK(text_of(alone, 0) == text_of(doc, i));
    for (int j = 0; j < i; ++j) CHECK(text_of(doc, i) != text_of(doc, j));
  }
  // The prompt is counted once, the replies each.
  const json::Value one = parse(live.post("/v1/chat/completions", chat(1, R"(,"seed":77)")).body);
  CHECK(at(doc, {"usage", "prompt_tokens"}) == at(one, {"usage", "prompt_tokens"}));
  CHECK(at(doc, {"usage", "completion_tokens"}) == json::Value(48));
}

TEST_CASE("a stream of n choices says per index what the whole says, side by side") {
  Setup setup = babble();
  setup.engine.on_step = [](std::span<const serve::StepItem>) -> Result<void> {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {};
  };
  const LiveServer live(setup);
  const json::Value doc = parse(live.post("/v1/chat/completions", chat(3, R"(,"seed":5)")).body);
  const Events events = events_of(
      live.post("/v1/chat/completions", chat(3, R"(,"seed":5,"stream":true,"stream_options":{"include_usage":true})"))
          .body);
  CHECK(events.done);
  std::array<std::string, 3> text, finish;
  std::array<int, 3> roles{};
  int changes = 0, last = -1;
  for (const json::Value& event : events.items) {
    const json::Value choice = at(event, {"choices", 0});
    if (!choice.is_object()) continue;
    const auto index = static_cast<size_t>(*at(choice, {"index"}).to_i64());
    REQUIRE(index < 3);
    changes += static_cast<int>(index) != last ? 1 : 0;
    last = static_cast<int>(index);
    if (at(choice, {"delta", "role"}).is_string()) ++roles[index];
    if (at(choice, {"delta", "content"}).is_string()) text[index] += at(choice, {"delta", "content"}).as_string();
    if (at(choice, {"finish_reason"}).is_string()) finish[index] = at(choice, {"finish_reason"}).as_string();
  }
  for (size_t i = 0; i < 3; ++i) {
    CHECK(text[i] == text_of(doc, static_cast<int>(i)));
    CHECK(finish[i] == "length");
    CHECK(roles[i] == 1);
  }
  CHECK(changes > 6);  // one after the other would be three
  CHECK(at(events.items.back(), {"usage"}) == at(doc, {"usage"}));
}

TEST_CASE("completions give n choices of every prompt, prompt by prompt") {
  const LiveServer live(babble());
  const std::string base = R"("ignore_eos":true,"max_tokens":6,"seed":9)";
  const json::Value doc = parse(live.post("/v1/completions", R"({"prompt":["ab","c"],"n":2,)" + base + "}").body);
  REQUIRE(at(doc, {"choices"}).as_array().size() == 4);
  const json::Value second = parse(live.post("/v1/completions", R"({"prompt":"c","n":2,)" + base + "}").body);
  for (int i = 0; i < 2; ++i) CHECK(at(doc, {"choices", 2 + i, "text"}) == at(second, {"choices", i, "text"}));
  CHECK(at(doc, {"choices", 0, "text"}) != at(doc, {"choices", 1, "text"}));
  for (int i = 0; i < 4; ++i) CHECK(at(doc, {"choices", i, "index"}) == json::Value(i));
  const json::Value each = parse(live.post("/v1/completions", R"({"prompt":["ab","c"],)" + base + "}").body);
  CHECK(at(doc, {"usage", "prompt_tokens"}) == at(each, {"usage", "prompt_tokens"}));
  CHECK(at(doc, {"usage", "completion_tokens"}) == json::Value(24));
  const auto refused = live.post("/v1/completions", R"({"prompt":"c","n":65})");
  CHECK(refused.status == 400);
  CHECK(at(parse(refused.body), {"error", "param"}) == json::Value("n"));
}

TEST_CASE("choices beyond the queue refuse the whole request, and nothing of it goes on") {
  Setup setup = babble();
  setup.loop.max_running = 1;
  setup.loop.max_queue = 2;
  setup.engine.on_step = [](std::span<const serve::StepItem>) -> Result<void> {  // none ends while the others come
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return {};
  };
  const LiveServer live(setup);
  CHECK(live.post("/v1/chat/completions", chat(4, "")).status == 429);
  CHECK(live.loop->wait_idle(5'000'000));
  CHECK(live.post("/v1/chat/completions", chat(3, "")).status == 200);
}
