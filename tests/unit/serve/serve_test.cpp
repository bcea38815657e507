// dsf-serve's own parts: the command line's plan, the registry of backends, the tokenizer of random weights.
#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/test/support.h"
#include "dsf/tokenizer/prompt.h"
#include "tools/serve/backends/registry/registry.h"
#include "tools/serve/dummy_tokenizer.h"
#include "tools/serve/options.h"

namespace dsf::serve {
namespace {

RawOptions options(const std::filesystem::path& model) {
  RawOptions raw;
  raw.model = model.string();
  return raw;
}

}  // namespace

TEST_CASE("the plan carries what the engine is asked for") {
  const test::TempDir dir;
  RawOptions raw = options(dir.path());
  raw.backend = "cuda", raw.device = 3, raw.load_format = "dummy", raw.dummy_experts = 64, raw.max_num_seqs = 2, raw.prefill_chunk = 2048;
  const auto plan = make_plan(raw);
  REQUIRE(plan);
  CHECK(plan->engine.backend == "cuda");
  CHECK(plan->engine.device == 3);
  CHECK(plan->engine.dummy);
  CHECK(plan->engine.dummy_experts == 64);
  CHECK(plan->engine.max_sessions == 2);
  CHECK(plan->engine.max_step_tokens == 2048);

  raw.load_format = "checkpoint";
  const auto refused = make_plan(raw);
  REQUIRE(!refused);
  CHECK(refused.error().code == Code::kUsage);
}

TEST_CASE("a backend that cannot run here is missing, with a fix") {
  const test::TempDir dir;
  EngineRequest request;
  request.backend = "cuda";
  request.model_dir = dir.path();
  request.device = 255;  // no machine has it
  const auto engine = open_engine(request);
  REQUIRE(!engine);
  CHECK(static_cast<int>(engine.error().code) == 5);
  CHECK(!engine.error().fix.empty());
}

TEST_CASE("the CPU backend has no random weights") {
  EngineRequest request;
  request.dummy = true;
  const auto engine = open_engine(request);
  REQUIRE(!engine);
  CHECK(engine.error().code == Code::kUsage);
}

TEST_CASE("the byte tokenizer reads back what it wrote and has the markers a prompt needs") {
  const auto tokenizer = tokenizer::Tokenizer::parse(byte_tokenizer_json(), "byte tokenizer");
  REQUIRE_MESSAGE(tokenizer, tokenizer.error().line());
  REQUIRE(tokenizer::ControlIds::find(*tokenizer));
  std::string all;
  for (int b = 1; b < 128; ++b) all.push_back(static_cast<char>(b));
  all += "Grüße, 世界";
  std::vector<tokenizer::TokenId> ids;
  tokenizer->encode_append(all, tokenizer::Specials::kOff, ids);
  CHECK(ids.size() == all.size());
  std::string back;
  for (const auto id : ids) back += tokenizer->bytes(id);
  CHECK(back == all);
}

}  // namespace dsf::serve
