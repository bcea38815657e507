// What a step may look like must not change a bit: chunk sizes, several sessions at once, threads, cut-back sessions.
#include <doctest/doctest.h>

#include "tiny.h"

namespace dsf::serve::test {

TEST_CASE("every chunk size gives the bits of the whole prompt at once") {
  const auto tiny = Tiny::open("tiny_v41 chunks");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  const Ids all = tiny->fed(2);
  const SessionId whole = open_session(*engine);
  const Floats reference = feed(*engine, whole, all);
  engine->close(whole);
  for (const int64_t chunk : {1, 3, 8, 9, 32, 80}) {
    CAPTURE(chunk);
    const SessionId session = open_session(*engine);
    CHECK(feed_chunks(*engine, session, all, chunk) == reference);
    engine->close(session);
  }
}

TEST_CASE("a step limit just as wide as the chunk is enough for the rings") {
  const auto tiny = Tiny::open("tiny_v41 chunks");
  if (!tiny) return;
  const Ids all = tiny->fed(2);
  const auto wide = tiny->engine(true);
  const Floats reference = feed(*wide, open_session(*wide), all);
  for (const int64_t chunk : {1, 3, 9}) {
    CpuEngineOptions options;
    options.max_step_tokens = chunk;
    const auto narrow = tiny->engine(true, options);
    CHECK(feed_chunks(*narrow, open_session(*narrow), all, chunk) == reference);
  }
}

TEST_CASE("the thread count does not change a bit") {
  const auto tiny = Tiny::open("tiny_v41 threads");
  if (!tiny) return;
  std::vector<Floats> results;
  for (const int threads : {1, 2, 5}) {
    CpuEngineOptions options;
    options.threads = threads;
    const auto engine = tiny->engine(true, options);
    results.push_back(feed_chunks(*engine, open_session(*engine), tiny->fed(1), 33));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

TEST_CASE("sessions stepped together, with chunks and single tokens mixed, equal each alone") {
  const auto tiny = Tiny::open("tiny_v41 sessions");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  struct Stream {
    Ids ids;
    SessionId session = -1;
    size_t at = 0;
    Floats logits, alone;
  };
  std::vector<Stream> streams(3);
  for (int i = 0; i < 3; ++i) {
    Stream& s = streams[static_cast<size_t>(i)];
    s.ids = tiny->fed(i);
    const SessionId session = open_session(*engine);
    s.alone = feed(*engine, session, s.ids);
    engine->close(session);
    s.session = open_session(*engine);
  }
  const size_t v = static_cast<size_t>(engine->config().vocab_size);
  // Uneven chunk lengths, so that sessions are in different phases of the ratio-2 groups; some steps hold one or two
  // sessions only.
  for (size_t round = 0; round < 200; ++round) {
    std::vector<StepItem> items;
    std::vector<Stream*> owners;
    for (size_t i = 0; i < streams.size(); ++i) {
      Stream& s = streams[i];
      if ((round + i) % 4 == 3) continue;
      const size_t n = std::min(s.ids.size() - s.at, 1 + (round * 5 + i * 3) % 7);
      if (n == 0) continue;
      items.push_back({.session = s.session, .tokens = std::span(s.ids).subspan(s.at, n), .want_all_logits = true});
      owners.push_back(&s);
      s.at += n;
    }
    const auto out = engine->step(items);
    REQUIRE(out.has_value());
    size_t row = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const auto part = out->logits.subspan(row * v, items[i].tokens.size() * v);
      owners[i]->logits.insert(owners[i]->logits.end(), part.begin(), part.end());
      row += items[i].tokens.size();
    }
  }
  for (const Stream& s : streams) {
    REQUIRE(s.at == s.ids.size());
    CHECK(s.logits == s.alone);
  }
}

TEST_CASE("a session cut back after wrong tokens goes on as if they had never been fed, drafts included") {
  const auto tiny = Tiny::open("tiny_v41 truncation");
  if (!tiny) return;
  CpuEngineOptions options;
  options.max_step_tokens = 16;
  const auto engine = tiny->engine(true, options);
  const Ids all = tiny->fed(2);
  const SessionId straight = open_session(*engine), cut = open_session(*engine);
  for (size_t at = 0; at < all.size(); at += 5) {
    const auto part = std::span(all).subspan(at, std::min<size_t>(5, all.size() - at));
    const Ids wrong(1 + at % 11, 77);
    feed(*engine, cut, wrong);
    REQUIRE(engine->truncate(cut, static_cast<int64_t>(at)).has_value());
    CAPTURE(at);
    CHECK(feed(*engine, cut, part) == feed(*engine, straight, part));
    CHECK(engine->draft(cut, 9)->logits == engine->draft(straight, 9)->logits);
  }
  CHECK(engine->truncate(cut, engine->length(cut) - 17).error().code == Code::kUsage);
  CHECK(engine->truncate(cut, engine->length(cut) + 1).error().code == Code::kUsage);
}

TEST_CASE("logits are given for the rows that were asked for") {
  const auto tiny = Tiny::open("tiny_v41 rows");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  const Ids ids = tiny->ids("prompt1.input_ids");
  const SessionId a = open_session(*engine), b = open_session(*engine), c = open_session(*engine),
                  d = open_session(*engine);
  const Floats all = feed(*engine, d, ids);
  const StepItem items[] = {{.session = a, .tokens = ids, .want_logits = false},
                            {.session = b, .tokens = ids},
                            {.session = c, .tokens = std::span(ids).first(3), .want_all_logits = true}};
  const auto out = engine->step(items);
  REQUIRE(out.has_value());
  REQUIRE(out->n_rows == 4);
  const auto v = static_cast<size_t>(engine->config().vocab_size);
  CHECK(std::equal(out->logits.begin(), out->logits.begin() + static_cast<std::ptrdiff_t>(v),
                   all.end() - static_cast<std::ptrdiff_t>(v)));
  CHECK(std::equal(out->logits.begin() + static_cast<std::ptrdiff_t>(v), out->logits.end(), all.begin()));
}

TEST_CASE("a step that cannot run names its reason and leaves every session as it was") {
  const auto tiny = Tiny::open("tiny_v41 limits");
  if (!tiny) return;
  CpuEngineOptions options;
  options.max_sessions = 2;
  options.max_model_len = 20;
  options.max_step_tokens = 16;
  const auto engine = tiny->engine(true, options);
  const SessionId a = open_session(*engine), b = open_session(*engine);
  CHECK(engine->open().error().code == Code::kBusy);
  const Ids good = {5, 6, 7}, bad = {5, 256}, negative = {-1}, many(17, 5), nine(9, 5);
  feed(*engine, a, nine);
  const auto refused = [&](std::vector<StepItem> items) {
    const auto out = engine->step(items);
    return !out && out.error().code == Code::kUsage && engine->length(a) == 9 && engine->length(b) == 0;
  };
  CHECK(refused({{.session = b, .tokens = good}, {.session = a, .tokens = bad}}));
  CHECK(refused({{.session = b, .tokens = good}, {.session = a, .tokens = negative}}));
  CHECK(refused({{.session = b, .tokens = good}, {.session = 99, .tokens = good}}));
  CHECK(refused({{.session = b, .tokens = good}, {.session = b, .tokens = good}}));
  CHECK(refused({{.session = b, .tokens = {}}}));
  CHECK(refused({{.session = b, .tokens = many}}));
  CHECK(refused({{.session = b, .tokens = good}, {.session = a, .tokens = std::span(many).first(12)}}));
  CHECK(engine->step({})->n_rows == 0);
  engine->close(b);
  CHECK(engine->open().has_value());
  CHECK(engine->draft(b, 5).error().code == Code::kUsage);
  CHECK(engine->draft(a, 256).error().code == Code::kUsage);
}

TEST_CASE("a token chosen by the engine is the one its logits give, beside items that want logits") {
  const auto tiny = Tiny::open("tiny_v41 choices");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  const Ids all = tiny->fed(1);
  const SessionId a = open_session(*engine), b = open_session(*engine), c = open_session(*engine);
  const ChoiceParams greedy{.temperature = 0}, keyed{.temperature = 1, .top_p = 0.9, .seed = 11, .position = 7};
  const std::vector<StepItem> items{{.session = a, .tokens = std::span(all).first(7), .choose = &greedy},
                                    {.session = b, .tokens = std::span(all).first(7)},
                                    {.session = c, .tokens = std::span(all).first(7), .choose = &keyed}};
  const auto out = engine->step(items);
  REQUIRE(out);
  REQUIRE(out->n_rows == 1);
  Chooser chooser;
  const auto first = chooser.choose(out->logits, greedy), second = chooser.choose(out->logits, keyed);
  REQUIRE((first && second));
  CHECK(out->chosen == Ids{*first, *second});
  CHECK(engine->length(c) == 7);
}

}  // namespace dsf::serve::test
