// Tensor parallel on the CPU: several ranks in one process against one rank. The ranks add the parts of a sum in
// another order, so without cache fake quantisation the engine's own bound holds (5e-5 on logits of about 10, see
// logits_test.cpp). With it a value next to a rounding boundary may fall the other way and move later tokens: there the
// statistics are held.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "dsf/made_checkpoint/folders.h"
#include "dsf/test/support.h"
#include "tiny.h"
#include "tools/serve/engine/local_ranks.h"

namespace dsf::serve {
namespace {

namespace made = made_checkpoint;
using test::Floats;
using test::Ids;

CpuEngineOptions options_of(const std::filesystem::path& model, const std::filesystem::path& engram, bool fake_quant) {
  CpuEngineOptions o;
  o.model_dir = model;
  o.engram_dir = engram;
  o.threads = 1;
  o.fake_quant = fake_quant;
  return o;
}

Ids prompt_for(const model::Config& c, int n = 40) {
  Ids ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 37 + 11) % static_cast<int32_t>(c.vocab_size));
  return ids;
}

using Streams = std::map<std::string, Floats>;

struct Answer {
  Floats logits, draft;
  Streams streams;  // what leaves every layer
};

// Prompt in two chunks, three tokens one by one, a draft: on every rank of a group, each in its own thread.
std::vector<Answer> answers(const CpuEngineOptions& o, int world, bool with_draft = true) {
  auto group = comm::in_process_group(world, 60'000'000);
  std::vector<Answer> out(static_cast<size_t>(world));
  std::vector<std::string> errors(out.size());
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < out.size(); ++r)
      threads.emplace_back([&, r] {
        const auto run = [&]() -> Result<void> {
          CpuEngineOptions mine = o;
          mine.comm = world > 1 ? group[r].get() : nullptr;
          DSF_TRY(const auto engine, CpuEngine::open(mine));
          Answer& a = out[r];
          int64_t step = 0;
          engine->trace().values = [&](std::string_view what, int64_t layer, std::span<const float> v, int64_t) {
            a.streams[std::string(what) + " " + std::to_string(layer) + " " + std::to_string(step)] =
                Floats(v.begin(), v.end());
          };
          DSF_TRY(const SessionId session, engine->open());
          const Ids ids = prompt_for(engine->config());
          for (const auto& [at, n] : {std::pair<size_t, size_t>{0, 21}, {21, 16}, {37, 1}, {38, 1}, {39, 1}}) {
            const StepItem item{.session = session, .tokens = std::span(ids).subspan(at, n), .want_all_logits = true};
            DSF_TRY(const StepOutput s, engine->step({&item, 1}));
            a.logits.insert(a.logits.end(), s.logits.begin(), s.logits.end());
            ++step;
          }
          if (with_draft) {
            DSF_TRY(const DraftOutput d, engine->draft(session, 12));
            a.draft = d.logits;
          }
          return {};
        };
        if (const auto done = run(); !done) {
          errors[r] = done.error().line();
          group[r]->abort("test failed");
        }
      });
  }
  for (const std::string& e : errors) REQUIRE_MESSAGE(e.empty(), e);
  return out;
}

double relative(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
  return std::sqrt(difference / size);
}

void check_plain(const std::filesystem::path& model, const std::filesystem::path& engram,
                 const std::vector<int>& worlds) {
  const CpuEngineOptions o = options_of(model, engram, false);
  const Answer one = answers(o, 1).front();
  for (const int world : worlds) {
    CAPTURE(world);
    const std::vector<Answer> many = answers(o, world);
    const float worst = test::max_difference(many[0].logits, one.logits),
                draft = test::max_difference(many[0].draft, one.draft);
    MESSAGE(model.filename().string() << " on " << world << " ranks: logits within " << worst << ", drafts within "
                                      << draft);
    CHECK(worst < 5e-5f);
    CHECK(draft < 5e-5f);
    CHECK(worst > 0);  // other orders of addition: equal bits would mean that nothing was split
    for (const Answer& a : many) {
      CHECK(a.logits == many[0].logits);
      CHECK(a.draft == many[0].draft);
      CHECK(a.streams.size() > 50);
      CHECK(a.streams == many[0].streams);  // bit for bit on every rank, in every layer and step
    }
  }
}

}  // namespace

TEST_CASE("tiny_v41 on two and on three ranks agrees with one, and every rank holds the same bits") {
  const auto tiny = test::Tiny::open("tensor parallel on tiny_v41");
  if (!tiny) return;
  check_plain(tiny->dir(), {}, {2, 3});
}

TEST_CASE("the made checkpoint, native and EXL3, on two and on three ranks agrees with one") {
  check_plain(made::native_folder(), {}, {2, 3});
  check_plain(made::exl3_folder(), made::native_folder(), {2, 3});
}

TEST_CASE("with cache fake quantisation two ranks still hold the same bits, close to one rank's") {
  const CpuEngineOptions o = options_of(made::native_folder(), {}, true);
  const Answer one = answers(o, 1).front();
  const std::vector<Answer> two = answers(o, 2);
  CHECK(two[0].logits == two[1].logits);
  CHECK(two[0].streams == two[1].streams);
  const double distance = relative(two[0].logits, one.logits);
  MESSAGE("rms difference relative to rms logit: ", distance);
  CHECK(distance < 0.05);  // a few flipped roundings; unrelated logits would give 1.4
}

TEST_CASE("a rank of an EXL3 pack decodes bit for bit its part of the whole matrices") {
  const auto config = model::load_config(made::exl3_folder() / "config.json");
  const auto checkpoint = safetensors::Checkpoint::open(made::exl3_folder());
  REQUIRE(checkpoint);
  CHECK(stored_form(*checkpoint) == model::StoredForm::kExl3);
  const auto split = model::Split::create(*config, 2, model::StoredForm::kExl3);
  REQUIRE(split);
  const auto whole = load_weights(*config, *checkpoint, false),
             part = load_weights(*config, *checkpoint, false, split->share(1));
  REQUIRE(part);
  const LayerWeights &w = whole->layers[2], &p = part->layers[2];
  const auto in_rows = [](const Linear& all, const Linear& own, int64_t first) {
    return std::equal(own.w.begin(), own.w.end(), all.w.begin() + first * all.in);
  };
  CHECK(p.attn.wq_b.out == w.attn.wq_b.out / 2);
  CHECK(in_rows(w.attn.wq_b, p.attn.wq_b, w.attn.wq_b.out / 2));
  CHECK(in_rows(w.ffn.experts[1].w1, p.ffn.experts[1].w1, 128));
  CHECK(in_rows(whole->head, part->head, split->share(1).vocab.begin));
  CHECK(p.attn.wo_a.size() == 1);
  CHECK(p.attn.wo_a[0].w == w.attn.wo_a[1].w);
  const Linear &w2 = w.ffn.experts[1].w2, &own = p.ffn.experts[1].w2;
  REQUIRE(own.in == 128);
  for (int64_t o = 0; o < w2.out; ++o)
    REQUIRE(std::equal(own.w.begin() + o * 128, own.w.begin() + (o + 1) * 128, w2.w.begin() + o * w2.in + 128));
}

TEST_CASE("one engine leads the others: sessions, steps and errors of the caller are the same as on one rank") {
  const CpuEngineOptions o = options_of(made::native_folder(), {}, true);
  const auto open = [&](comm::Communicator& comm) -> Result<std::unique_ptr<Engine>> {
    CpuEngineOptions mine = o;
    mine.comm = &comm;
    mine.max_sessions = 2;
    return open_cpu_engine(mine);
  };
  auto engine = open_local_ranks(2, open);
  REQUIRE_MESSAGE(engine, (engine ? std::string() : engine.error().line()));
  Engine& e = **engine;
  const Ids ids = prompt_for(e.config());
  const SessionId a = *e.open(), b = *e.open();
  CHECK(e.open().error().code == Code::kBusy);
  const StepItem wrong{.session = a, .tokens = {}};
  CHECK(e.step({&wrong, 1}).error().code == Code::kUsage);
  const StepItem both[] = {{.session = a, .tokens = ids},
                           {.session = b, .tokens = std::span(ids).first(5), .want_all_logits = true}};
  const auto out = e.step(both);
  REQUIRE_MESSAGE(out, (out ? std::string() : out.error().line()));
  CHECK(out->n_rows == 6);
  CHECK(e.length(a) == 40);
  e.close(a);
  CHECK(e.open());
  bool says = false;
  for (const auto& [key, value] : e.identity()) says = says || (key == "world_size" && value == "2");
  CHECK(says);
}

TEST_CASE("a rank that cannot open ends the start with its own error") {
  const auto open = [&](comm::Communicator& comm) -> Result<std::unique_ptr<Engine>> {
    CpuEngineOptions mine = options_of(made::native_folder(), {}, true);
    mine.comm = &comm;
    if (comm.rank() == 1) mine.model_dir = "/nowhere";
    return open_cpu_engine(mine);
  };
  const auto engine = open_local_ranks(2, open);
  REQUIRE_FALSE(engine);
  CHECK(engine.error().line().find("/nowhere") != std::string::npos);
}

}  // namespace dsf::serve
