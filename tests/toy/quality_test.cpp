// Does the committed pack still answer? Perplexity of expected answers to held-out questions, under a bound that a
// broken prompt, forward, Engram or quantizer each passes. The whole path of a request is in it but HTTP and sampling:
// prompt, tokenizer, EXL3, Engram, engine.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "dsf/io/file.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"
#include "tests/toy/heldout.h"
#include "tools/serve/engine/cpu_engine.h"

using namespace dsf;
using toy::Conversation;

namespace {

namespace fs = std::filesystem;

const fs::path kToy = fs::path(DSF_SOURCE_DIR) / "tests/toy";
const fs::path kPack = kToy / "model/exl3",
               kNative = kToy / "model/native";  // the tables stand in the native form alone

constexpr double kBound = 1.005;  // seen: 1.001; the breaks below give 1.01 to 3.8
constexpr int64_t kStride = 37;   // of the held-out questions: 20 of every kind of skill

template <class T>
T value_of(Result<T> r) {
  REQUIRE_MESSAGE(r.has_value(), (r ? std::string() : r.error().line()));
  return std::move(*r);
}

struct Setup {
  fs::path pack = kPack, tables = kNative;
  std::function<void(model::Config&)> change = [](model::Config&) {};
};

// Per token of the answers.
double answer_perplexity(const Setup& setup, const std::vector<Conversation>& conversations) {
  serve::CpuEngineOptions options{
      .model_dir = setup.pack, .engram_dir = setup.tables, .max_sessions = 1, .draft = false};
  options.config = value_of(model::load_config(setup.pack / "config.json"));
  setup.change(*options.config);
  const auto engine = value_of(serve::CpuEngine::open(std::move(options)));
  double nll = 0, n = 0;
  for (const Conversation& c : conversations) {
    const auto session = value_of(engine->open());
    const serve::StepItem item{.session = session, .tokens = c.ids, .want_all_logits = true};
    const auto out = value_of(engine->step({&item, 1}));
    const auto width = static_cast<size_t>(engine->config().vocab_size);
    for (auto t = static_cast<size_t>(c.answer_begin); t < c.ids.size(); ++t, ++n) {
      const auto row = out.logits.subspan((t - 1) * width, width);
      double sum = 0;
      for (const float v : row) sum += std::exp(double{v} - double{row[static_cast<size_t>(c.ids[t])]});
      nll += std::log(sum);
    }
    engine->close(session);
  }
  return std::exp(nll / n);
}

const std::vector<Conversation>& heldout() {
  static const auto tokenizer = value_of(tokenizer::Tokenizer::load(kPack / "tokenizer.json"));
  static const auto all = value_of(toy::load_heldout(kToy / "heldout.jsonl", tokenizer, kStride));
  return all;
}

void check_seen(const Setup& broken, const std::vector<Conversation>& conversations) {
  const double seen = answer_perplexity(broken, conversations);
  MESSAGE("perplexity of the answers: " << seen);
  CHECK(seen > kBound);
}

void zero(std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{}); }

// Copies a folder and lets `change` edit the bytes of every tensor whose name it accepts.
void copy_changed(const fs::path& from, const fs::path& to, std::string_view part,
                  const std::function<void(std::span<std::byte>)>& change) {
  fs::copy(from, to);
  const auto checkpoint = value_of(safetensors::Checkpoint::open(to));
  int n_changed = 0;
  for (const std::string& name : checkpoint.names()) {
    if (name.find(part) == std::string::npos) continue;
    const auto view = value_of(checkpoint.tensor(name));
    const safetensors::File& file = *checkpoint.file_of(name);
    std::vector<std::byte> bytes(view.bytes.begin(), view.bytes.end());
    change(bytes);
    const auto fd = value_of(io::open_write(file.path(), true));
    REQUIRE(io::write_at(fd, static_cast<uint64_t>(view.bytes.data() - file.mapping().bytes().data()), bytes));
    ++n_changed;
  }
  REQUIRE(n_changed > 0);
}

}  // namespace

TEST_CASE("the toy pack answers held-out questions") {
  const double seen = answer_perplexity({}, heldout());
  MESSAGE("perplexity of the answers: " << seen);
  CHECK(seen < kBound);
}

TEST_CASE("a broken prompt is seen: the marker that opens the answer says thinking for plain, and plain for thinking") {
  const auto tokenizer = value_of(tokenizer::Tokenizer::load(kPack / "tokenizer.json"));
  const auto ids = value_of(tokenizer::ControlIds::find(tokenizer));
  const int32_t open = ids[tokenizer::Control::kThinkOpen], close = ids[tokenizer::Control::kThinkClose];
  auto broken = heldout();
  for (Conversation& c : broken) {
    int32_t& marker = c.ids[static_cast<size_t>(c.answer_begin - 1)];
    REQUIRE((marker == open || marker == close));
    marker = marker == open ? close : open;
  }
  check_seen({}, broken);
}

TEST_CASE("a broken forward is seen: one layer's attention adds nothing") {
  const dsf::test::TempDir dir;
  copy_changed(kPack, dir / "pack", "layers.4.attn.wo_b.svh", zero);
  check_seen({.pack = dir / "pack"}, heldout());
}

TEST_CASE("a broken router is seen: one expert where two were trained") {
  check_seen({.change = [](model::Config& c) { c.num_experts_per_tok = 1; }}, heldout());
}

TEST_CASE("a broken Engram is seen: the rows of one layer of two are zero") {
  const dsf::test::TempDir dir;
  copy_changed(kNative, dir / "tables", "layers.3.engram.embed.weight", zero);
  check_seen({.tables = dir / "tables"}, heldout());
}

TEST_CASE("a broken quantizer is seen: every second input sign of one matrix is wrong") {
  const dsf::test::TempDir dir;
  copy_changed(kPack, dir / "pack", "layers.0.attn.wq_b.suh", [](std::span<std::byte> fp16) {
    for (size_t i = 1; i < fp16.size(); i += 4) fp16[i] ^= std::byte{0x80};
  });
  check_seen({.pack = dir / "pack"}, heldout());
}
