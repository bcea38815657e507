// A stored random configuration against the float64 reference of tests/oracle/engine: what the shared data cannot see (two streams, a
// drafter with its own expert count, three-grams) and what runs where the shared data is absent.
#include <doctest/doctest.h>

#include "dsf/test/support.h"
#include "tiny.h"

namespace dsf::serve::test {

TEST_CASE("the stored small configuration gives the reference's logits and drafts") {
  const std::filesystem::path dir = dsf::test::golden() / "engine" / "small";
  const auto golden = safetensors::File::open(dsf::test::golden() / "engine" / "small.golden.safetensors");
  REQUIRE_MESSAGE(golden.has_value(), (golden ? std::string() : golden.error().line()));
  const auto floats = [&](const std::string& name) { return *safetensors::to_f32(*golden->tensor(name)); };
  const auto integers = [&](const std::string& name) {
    const auto v = *safetensors::to_i64(*golden->tensor(name));
    return Ids(v.begin(), v.end());
  };
  const Ids ids = integers("input_ids");
  for (const bool fake_quant : {false, true}) {
    CAPTURE(fake_quant);
    const std::string suffix = fake_quant ? "" : "_nofq";
    CpuEngineOptions options;
    options.model_dir = dir;
    options.fake_quant = fake_quant;
    options.threads = 2;
    const auto engine = CpuEngine::open(std::move(options));
    REQUIRE_MESSAGE(engine.has_value(), (engine ? std::string() : engine.error().line()));
    const SessionId session = open_session(**engine);
    CHECK(max_difference(feed_chunks(**engine, session, ids, 7), floats("logits" + suffix)) < 5e-5f);
    const auto draft = (*engine)->draft(session, ids[0]);
    REQUIRE(draft.has_value());
    CHECK(draft->ids == integers("draft_ids" + suffix));
    CHECK(max_difference(draft->logits, floats("draft_logits" + suffix)) < (fake_quant ? 1e-2f : 5e-5f));
    CHECK(max_difference(draft->confidence, floats("draft_confidence" + suffix)) < (fake_quant ? 1e-2f : 5e-5f));
  }
}

}  // namespace dsf::serve::test
