// DSpark drafts against DeepSeek's own model code. Bounds: data/tiny_v41 README, "drafts" row: f32 noise with the cache
// formats off; with them on, single FP8 roundings of block and context keys.
#include <doctest/doctest.h>

#include "tiny.h"

namespace dsf::serve::test {
namespace {

struct Errors {
  float logits = 0, confidence = 0;
};

void check_draft(const Tiny& tiny, const DraftOutput& out, const std::string& name, const std::string& suffix,
                 int32_t pending, size_t row, Errors& worst) {
  CAPTURE(name);
  CAPTURE(row);
  const size_t n = out.ids.size(), v = out.logits.size() / n;
  const Ids want = tiny.ids(name + "_ids" + suffix);
  const Floats logits = tiny.floats(name + "_logits" + suffix), confidence = tiny.floats(name + "_confidence" + suffix);
  REQUIRE(want[row * (n + 1)] == pending);
  CHECK(std::equal(out.ids.begin(), out.ids.end(), want.begin() + static_cast<std::ptrdiff_t>(row * (n + 1) + 1)));
  worst.logits = std::max(worst.logits, max_difference(out.logits, std::span(logits).subspan(row * n * v, n * v)));
  worst.confidence =
      std::max(worst.confidence, max_difference(out.confidence, std::span(confidence).subspan(row * n, n)));
}

DraftOutput draft(CpuEngine& engine, SessionId session, int32_t pending) {
  auto out = engine.draft(session, pending);
  REQUIRE_MESSAGE(out.has_value(), (out ? std::string() : out.error().line()));
  return std::move(*out);
}

void check_all_drafts(const Tiny& tiny, bool fake_quant, Errors bound) {
  const auto engine = tiny.engine(fake_quant);
  const std::string suffix = fake_quant ? "" : "_nofq";
  Errors worst;
  for (int prompt = 0; prompt < 3; ++prompt) {
    const std::string p = "prompt" + std::to_string(prompt);
    const Ids next = tiny.ids(p + ".cont_ids");
    const SessionId session = open_session(*engine);
    feed(*engine, session, tiny.ids(p + ".input_ids"));
    if (prompt > 0) check_draft(tiny, draft(*engine, session, next[0]), p + ".draft0", suffix, next[0], 0, worst);
    for (size_t j = 0; j + 1 < next.size(); ++j) {
      feed(*engine, session, std::span(next).subspan(j, 1));
      check_draft(tiny, draft(*engine, session, next[j + 1]), p + ".draft", suffix, next[j + 1], j, worst);
    }
    engine->close(session);
  }
  MESSAGE("drafts", suffix, ": logits ", worst.logits, ", confidence ", worst.confidence);
  CHECK(worst.logits < bound.logits);
  CHECK(worst.confidence < bound.confidence);
}

}  // namespace

TEST_CASE("draft ids, logits and confidences equal the reference, cache formats off") {
  const auto tiny = Tiny::open("tiny_v41 drafts");
  if (tiny) check_all_drafts(*tiny, false, {5e-5f, 5e-5f});
}

TEST_CASE("draft ids, logits and confidences equal the reference, cache formats on") {
  const auto tiny = Tiny::open("tiny_v41 drafts");
  if (tiny) check_all_drafts(*tiny, true, {1e-2f, 1e-2f});
}

TEST_CASE("the taps that feed the drafter equal the reference at every position") {
  const auto tiny = Tiny::open("tiny_v41 taps");
  if (!tiny) return;
  for (const bool fake_quant : {false, true}) {
    const auto engine = tiny->engine(fake_quant);
    Floats taps;
    engine->trace().values = [&](std::string_view what, int64_t, std::span<const float> v, int64_t) {
      if (what == "main_hidden") taps.insert(taps.end(), v.begin(), v.end());
    };
    feed_chunks(*engine, open_session(*engine), tiny->fed(1), 7);
    CHECK(max_difference(taps, tiny->floats(fake_quant ? "prompt1.main_hidden" : "prompt1.main_hidden_nofq")) <
          (fake_quant ? 1e-3f : 5e-5f));
  }
}

TEST_CASE("drafting leaves the session as it was") {
  const auto tiny = Tiny::open("tiny_v41 drafts");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  const Ids all = tiny->fed(1);
  const SessionId with = open_session(*engine), without = open_session(*engine);
  for (size_t i = 0; i < all.size(); ++i) {
    const Floats a = feed(*engine, with, std::span(all).subspan(i, 1)),
                 b = feed(*engine, without, std::span(all).subspan(i, 1));
    REQUIRE(a == b);
    draft(*engine, with, 7);
  }
}

}  // namespace dsf::serve::test
