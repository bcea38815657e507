// Logits of the whole model against two independent implementations. Bounds: f32 noise with the cache formats off
// (hc_eps = 0 would already move logits by 9e-5), and with them on one rounding that falls the other way (model.md
// section 11).
#include <doctest/doctest.h>

#include "tiny.h"

namespace dsf::serve::test {
namespace {

constexpr float kPlain = 5e-5f, kQuantised = 1e-3f;

void check_prompt(const Tiny& tiny, CpuEngine& engine, int prompt, bool fake_quant) {
  CAPTURE(prompt);
  CAPTURE(fake_quant);
  const std::string p = "prompt" + std::to_string(prompt), suffix = fake_quant ? "" : "_nofq";
  const float bound = fake_quant ? kQuantised : kPlain;
  const Ids ids = tiny.ids(p + ".input_ids"), continuation = tiny.ids(p + ".cont_ids");
  const SessionId session = open_session(engine);

  const Floats prefill = feed(engine, session, ids);
  const float prefill_error = max_difference(prefill, tiny.floats(p + ".logits" + suffix));
  Floats decode(prefill.end() - engine.config().vocab_size, prefill.end());
  for (size_t i = 0; i + 1 < continuation.size(); ++i) {
    const Floats row = feed(engine, session, std::span(continuation).subspan(i, 1));
    decode.insert(decode.end(), row.begin(), row.end());
  }
  engine.close(session);
  const Floats reference = tiny.floats(p + ".cont_logits" + suffix);
  const float decode_error = max_difference(decode, reference);
  MESSAGE(p, suffix, ": prefill ", prefill_error, ", decode ", decode_error);
  CHECK(prefill_error < bound);
  CHECK(decode_error < bound);
  // Greedy tokens; without the cache formats the continuation is teacher-forced, so it is not the greedy one.
  CHECK(argmax_rows(decode, engine.config().vocab_size) == argmax_rows(reference, engine.config().vocab_size));
  if (fake_quant) CHECK(argmax_rows(decode, engine.config().vocab_size) == continuation);
}

}  // namespace

TEST_CASE("prefill and decode logits and greedy tokens equal the references, cache formats off") {
  const auto tiny = Tiny::open("tiny_v41 logits");
  if (!tiny) return;
  const auto engine = tiny->engine(false);
  for (int prompt = 0; prompt < 3; ++prompt) check_prompt(*tiny, *engine, prompt, false);
}

TEST_CASE("prefill and decode logits and greedy tokens equal the references, cache formats on") {
  const auto tiny = Tiny::open("tiny_v41 logits");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  for (int prompt = 0; prompt < 3; ++prompt) check_prompt(*tiny, *engine, prompt, true);
}

TEST_CASE("a selection wider than the context and a window wider than the context give the references' logits") {
  const auto tiny = Tiny::open("tiny_v41 variants");
  if (!tiny) return;
  model::Config dense = *model::load_config(tiny->dir() / "config.json"), window = dense;
  dense.index_topk = 256;
  dense.candidate_topk_blocks = 64;
  window.sliding_window = 128;
  const auto dense_engine = tiny->engine(false, {.config = dense});
  for (const std::string p : {"prompt1", "prompt2"}) {
    const float error = max_difference(feed(*dense_engine, open_session(*dense_engine), tiny->ids(p + ".input_ids")),
                                       tiny->floats("variant_dense." + p + ".logits_nofq"));
    MESSAGE("dense ", p, ": ", error);
    CHECK(error < kPlain);
  }
  const auto window_engine = tiny->engine(false, {.config = window});
  const float error = max_difference(feed(*window_engine, open_session(*window_engine), tiny->ids("prompt1.input_ids")),
                                     tiny->floats("variant_window.prompt1.logits_nofq"));
  MESSAGE("window prompt1: ", error);
  CHECK(error < kPlain);
}

}  // namespace dsf::serve::test
