#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/engram/layout.h"
#include "dsf/io/file.h"
#include "dsf/made_checkpoint/folders.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "dsf/model/engram.h"
#include "dsf/model/weights.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"
#include "dsf/tokenizer/tokenizer.h"

using namespace dsf;
using safetensors::Checkpoint;

namespace {

model::Config made_config(bool vision = false) {
  auto c = made_checkpoint::config({.vision = vision});
  REQUIRE_MESSAGE(c, c.error().line());
  return *c;
}

Checkpoint opened(const std::filesystem::path& dir) {
  auto c = Checkpoint::open(dir);
  REQUIRE_MESSAGE(c, c.error().line());
  return std::move(*c);
}

void check_tensors(const Checkpoint& checkpoint, const std::vector<model::TensorSpec>& want) {
  for (const model::TensorSpec& spec : want) {
    CAPTURE(spec.name);
    const auto view = checkpoint.tensor(spec.name);
    REQUIRE(view.has_value());
    CHECK(view->dtype() == spec.dtype);
    CHECK(view->shape() == spec.shape);
  }
  CHECK(checkpoint.names().size() == want.size());
}

std::vector<float> values(const Checkpoint& c, const std::string& name) {
  const auto view = c.tensor(name);
  REQUIRE(view.has_value());
  auto v = safetensors::to_f32(*view);
  REQUIRE(v.has_value());
  return *v;
}

double rms(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * double{x};
  return std::sqrt(sum / static_cast<double>(v.size()));
}

}  // namespace

TEST_CASE("the made checkpoint holds exactly the tensors its configuration asks for") {
  check_tensors(opened(made_checkpoint::native_folder()), model::native_tensors(made_config()));
}

TEST_CASE("a vision tower adds its tensors and changes no other") {
  test::TempDir dir;
  REQUIRE(made_checkpoint::write_native(dir / "vision", {.vision = true}).has_value());
  const Checkpoint with = opened(dir / "vision"), without = opened(made_checkpoint::native_folder());
  check_tensors(with, model::native_tensors(made_config(true)));
  const auto a = with.tensor("layers.3.ffn.experts.2.w1.weight"),
             b = without.tensor("layers.3.ffn.experts.2.w1.weight");
  CHECK(std::equal(a->bytes.begin(), a->bytes.end(), b->bytes.begin(), b->bytes.end()));
}

TEST_CASE("each Engram layer has a shard of its own at the end, with its six tensors and no other") {
  const Checkpoint c = opened(made_checkpoint::native_folder());
  const auto& layers = made_config().engram_layer_ids;
  REQUIRE(layers.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const std::string name = i == 0 ? "model-00005-of-00006.safetensors" : "model-00006-of-00006.safetensors";
    const auto file = safetensors::File::open(made_checkpoint::native_folder() / name);
    REQUIRE(file.has_value());
    std::set<std::string> tensors, want;
    for (const auto& t : file->header().tensors) tensors.insert(t.name);
    for (const char* part : {"embed.weight", "embed.scale", "wkv.weight", "wkv.scale", "q_weight", "k_weight"})
      want.insert("layers." + std::to_string(layers[i]) + ".engram." + part);
    CHECK(tensors == want);
  }
}

TEST_CASE("the same seed gives the same bytes, pinned; another seed gives others") {
  test::TempDir dir;
  REQUIRE(made_checkpoint::write_native(dir / "a", {.seed = 1}).has_value());
  REQUIRE(made_checkpoint::write_native(dir / "b", {.seed = 2}).has_value());
  const std::string a = made_checkpoint::digest(dir / "a").value();
  CHECK(a == made_checkpoint::digest(made_checkpoint::native_folder()).value());
  CHECK(a != made_checkpoint::digest(dir / "b").value());
  // Tests elsewhere compare with what this model answers: whoever changes these bytes means to.
  CHECK(a == "34228c6973c37fa0f0b1ca21a1e50eea7793baccef01b2b7697ddb76bd0230a3");
}

TEST_CASE("every path of the architecture is alive, and splits over two ranks on 128-blocks") {
  const model::Config c = made_config();
  std::set<std::string> seen;
  for (const model::LayerRole& r : model::layer_roles(c)) {
    if (r.ratio == 0) seen.insert("window");
    if (r.owns_kv) seen.insert("full " + std::to_string(r.ratio));
    if (r.ratio > 0 && !r.owns_kv) seen.insert(r.owns_index ? "reindex" : "reuse " + std::to_string(r.ratio));
    if (r.candidate_source) seen.insert("candidates");
    if (r.candidate_limited) seen.insert("limited");
  }
  CHECK(seen ==
        std::set<std::string>{"window", "full 1", "full 2", "reuse 1", "reuse 2", "reindex", "candidates", "limited"});
  CHECK(c.candidate_topk_blocks * c.candidate_block_size - (c.candidate_block_size - 1) >= c.index_topk);
  for (const int64_t n :
       {c.moe_intermediate_size, c.num_attention_heads * c.head_dim, c.o_groups * c.o_lora_rank, c.vocab_size})
    CHECK(n % 256 == 0);
  for (const model::PackedSpec& p : model::exl3_matrices(c)) {
    CHECK(p.in % 128 == 0);
    CHECK(p.out % 128 == 0);
  }
}

TEST_CASE("weights have the magnitudes that keep a forward pass near one") {
  const Checkpoint c = opened(made_checkpoint::native_folder());
  CHECK(rms(values(c, "embed.weight")) == doctest::Approx(1).epsilon(0.02));
  CHECK(rms(values(c, "head.weight")) == doctest::Approx(2 / std::sqrt(128.0)).epsilon(0.02));
  CHECK(rms(values(c, "layers.4.hc_attn_fn")) == doctest::Approx(1 / std::sqrt(512.0)).epsilon(0.03));
  for (const float w : values(c, "layers.2.attn_norm.weight")) CHECK((w >= 0.5f && w <= 1.5f));
  CHECK(values(c, "layers.2.ffn.gate.bias") != values(c, "layers.2.ffn.gate.bias_vl"));
}

TEST_CASE("the tokenizer has every token the server looks up, and round-trips text") {
  const auto t = tokenizer::Tokenizer::load(made_checkpoint::native_folder() / "tokenizer.json");
  REQUIRE_MESSAGE(t, t.error().line());
  const model::Config c = made_config();
  CHECK(t->n_tokens() == c.vocab_size);
  CHECK(t->id_limit() == c.vocab_size);
  CHECK(t->find("<｜begin▁of▁sentence｜>") == c.bos_token_id);
  CHECK(t->find("<｜end▁of▁sentence｜>") == c.eos_token_id);
  CHECK(t->find("<｜System｜>") == c.dspark_noise_token_id);
  CHECK(t->find("<｜deepseek_image｜>") == c.image_token_id);
  for (const char* token :
       {"<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>"}) {
    CHECK(t->has(t->find(token).value_or(-1)));
    CHECK(t->encode(token, tokenizer::Specials::kParse).size() == 1);
    CHECK(t->encode(token, tokenizer::Specials::kOff).size() > 1);
  }
  const std::string text = "The harbour of Lindow, 2026: <think>\n\n 港口 😀 \xF0\x9F\x8C\x8A end.";
  CHECK(t->decode(t->encode(text, tokenizer::Specials::kOff), false) == text);
  CHECK(t->encode(" the boats", tokenizer::Specials::kOff).size() <= 3);  // merges do something
}

TEST_CASE("the Engram sizes agree with the tokenizer's map and the primes") {
  const model::Config c = made_config();
  const auto map = model::load_token_map(made_checkpoint::native_folder(), c);
  REQUIRE_MESSAGE(map, map.error().line());
  CHECK(map->compressed_size() < c.vocab_size);  // some tokens share a key: "The", " the"
  const auto layout = engram::Layout::create(model::engram_spec(c));
  REQUIRE_MESSAGE(layout, layout.error().line());
  CHECK(layout->columns() % 2 == 0);
  CHECK(layout->layers()[0].rows != layout->layers()[1].rows);
}
