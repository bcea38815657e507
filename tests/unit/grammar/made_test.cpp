// The CPU engine on the made checkpoint, whose weights are random, held to formats through the scheduler.
#include <set>

#include "dsf/made_checkpoint/made_checkpoint.h"
#include "tools/serve/engine/cpu_engine.h"
#include "tools/serve/grammar/grammar_filter.h"
#include "tools/serve/scheduler/engine_loop.h"
#include "valid.h"
#include "walk.h"

using namespace dsf;
using namespace dsf::test;

namespace {

struct Made {
  TempDir dir;
  std::unique_ptr<serve::EngineLoop> loop;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const serve::grammar::TokenTrie> trie;
  int32_t eos = 0;

  Made() {
    REQUIRE(made_checkpoint::write_native(dir.path(), {}).has_value());
    serve::CpuEngineOptions options;
    options.model_dir = dir.path();
    options.max_model_len = 1024;
    options.threads = 2;
    auto engine = serve::open_cpu_engine(std::move(options));
    REQUIRE_MESSAGE(engine.has_value(), (engine ? std::string() : engine.error().line()));
    loop = std::make_unique<serve::EngineLoop>(std::move(*engine), serve::EngineLoopOptions{});
    auto loaded = tokenizer::Tokenizer::load(dir / "tokenizer.json");
    REQUIRE(loaded.has_value());
    tokenizer = std::make_unique<tokenizer::Tokenizer>(std::move(*loaded));
    trie = std::make_shared<const serve::grammar::TokenTrie>(
        serve::grammar::TokenTrie::make(*tokenizer, loop->config().vocab_size));
    eos = static_cast<int32_t>(loop->config().eos_token_id);
  }

  std::shared_ptr<serve::Stream> ask(const serve::grammar::Grammar& grammar, uint64_t seed) {
    serve::GenerationRequest request;
    request.prompt = {0, static_cast<int32_t>(40 + seed)};
    request.max_tokens = 160;
    request.sampling.seed = seed;
    request.sampling.top_p = 1;
    request.sampling.temperature = seed % 3 == 0 ? 0 : 1.3;
    request.steering.active = true;
    request.steering.filter = std::make_unique<serve::grammar::GrammarFilter>(*tokenizer, grammar, trie, eos);
    auto stream = loop->submit(std::move(request));
    REQUIRE(stream.has_value());
    return *stream;
  }

  // The text, and whether it ended by itself.
  std::pair<std::string, bool> answer(serve::Stream& stream) {
    std::vector<int32_t> ids;
    while (true) {
      const serve::Batch batch = stream.wait(1'000'000);
      for (const serve::Choice& c : batch.tokens) ids.push_back(c.id);
      if (!batch.end) continue;
      REQUIRE_MESSAGE(batch.end->reason != serve::EndReason::kFailed, batch.end->error.line());
      const bool whole = batch.end->reason == serve::EndReason::kEos;
      if (whole) ids.pop_back();
      return {tokenizer->decode_bytes(ids, false), whole};
    }
  }
};

}  // namespace

TEST_CASE("the random made model answers in every format it is held to") {
  Made made;
  const char* schemas[] = {
      R"({"type":"object","properties":{"city":{"type":"string","maxLength":6},"days":{"type":"integer","minimum":1,"maximum":14},"kind":{"enum":["rain","sun"]},"at":{"anyOf":[{"type":"number"},{"type":"null"}]}},"required":["city","days","kind","at"],"additionalProperties":false})",
      R"({"type":"array","items":{"$ref":"#/$defs/n"},"minItems":2,"maxItems":3,"$defs":{"n":{"type":"object","properties":{"v":{"type":"boolean"},"next":{"$ref":"#/$defs/n"}},"required":["v"],"additionalProperties":false}}})",
      R"({"type":"string","pattern":"^[A-Z]{3}-\\d{2}$"})"};
  for (const char* text : schemas) {
    CAPTURE(text);
    const json::Value schema = parse_json(text);
    const auto grammar = compiled(text);
    std::vector<std::shared_ptr<serve::Stream>> streams;
    for (uint64_t seed = 0; seed < 8; ++seed) streams.push_back(made.ask(grammar, seed));
    int whole = 0;
    for (const auto& stream : streams) {
      const auto [reply, ended] = made.answer(*stream);
      serve::grammar::Matcher m(grammar, made.trie);
      CHECK_MESSAGE(m.advance(reply), reply);  // also a reply that max_tokens cut
      if (!ended) continue;
      ++whole;
      const auto value = json::parse(reply, "reply");
      REQUIRE_MESSAGE(value.has_value(), reply);
      CHECK_MESSAGE(valid(*value, schema, schema), reply);
    }
    CHECK(whole >= 4);
  }
}

TEST_CASE("the made vocabulary holds every byte, so that no mask can be empty") {
  Made made;
  std::set<uint8_t> bytes;
  for (int32_t id = 0; id < made.tokenizer->id_limit(); ++id) {
    const std::string_view b = made.tokenizer->bytes(id);
    if (b.size() == 1 && !made.tokenizer->is_added(id)) bytes.insert(static_cast<uint8_t>(b[0]));
  }
  CHECK(bytes.size() == 256);
}
