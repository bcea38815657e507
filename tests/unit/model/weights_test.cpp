#include "dsf/model/weights.h"

#include <algorithm>
#include <doctest/doctest.h>
#include <set>

#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"

using namespace dsf;
using tensor::DType;

TEST_CASE("the release has 96,085 tensors and the published bytes per dtype") {
  const auto c = model::load_config(test::golden() / "config" / "release.json");
  REQUIRE_MESSAGE(c, c.error().line());
  const auto all = model::native_tensors(*c);
  auto t = model::totals(all);
  CHECK(t.n_tensors == 96'085);
  CHECK(t.bytes[DType::kBF16] == 3'952'883'712);
  CHECK(t.bytes[DType::kF32] == 169'229'128);
  CHECK(t.bytes[DType::kF8E4M3] == 204'015'223'296);
  CHECK(t.bytes[DType::kF8E8M0] == 23'563'015'184);
  CHECK(t.bytes[DType::kI8] == 278'585'671'680);
  int64_t sum = 0;
  for (const auto& [dtype, bytes] : t.bytes) sum += bytes;
  CHECK(sum == 510'286'023'000);

  std::set<std::string> names;
  for (const auto& s : all) names.insert(s.name);
  CHECK(names.size() == all.size());
  CHECK(names.contains("layers.14.engram.embed.scale"));
  CHECK_FALSE(names.contains("layers.20.attn.compressor.wgate.weight"));
  CHECK(model::vision_weights(*c).size() == 266);
}

TEST_CASE("the EXL3 pack of the release has 47,900 packed matrices, all in whole 128-blocks") {
  const auto c = model::load_config(test::golden() / "config" / "release.json");
  REQUIRE(c);
  const auto packed = model::exl3_matrices(*c);
  CHECK(packed.size() == 47'900);
  CHECK(std::all_of(packed.begin(), packed.end(), [](const auto& p) { return p.in % 128 == 0 && p.out % 128 == 0; }));
  CHECK(std::any_of(packed.begin(), packed.end(), [](const auto& p) { return p.name == "layers.0.attn.wo_a.slice.7" && p.in == 4096 && p.out == 1024; }));
}

TEST_CASE("every tensor of the independent tiny model is in the table with its shape") {
  if (test::shared_data().empty()) return test::skip("tiny_v41 tensor table", "shared data not present");
  const auto dir = test::shared_data() / "tiny_v41";
  const auto c = model::load_config(dir / "config.json");
  REQUIRE(c);
  const auto checkpoint = safetensors::Checkpoint::open(dir);
  REQUIRE_MESSAGE(checkpoint, checkpoint.error().line());
  std::set<std::string> expected;
  for (const auto& part : {model::text_weights(*c), model::dspark_weights(*c)}) {
    for (const auto& w : part) {
      // Its linears are plain BF16, so the logical shape is the stored one.
      const std::string name = w.kind == model::WeightKind::kPlain ? w.name : w.name + ".weight";
      expected.insert(name);
      const auto view = checkpoint->tensor(name);
      REQUIRE_MESSAGE(view, name);
      CHECK_MESSAGE(view->shape() == w.shape, name);
    }
  }
  for (const std::string& name : checkpoint->names())
    if (!name.ends_with(".engram.embed.scale")) CHECK_MESSAGE(expected.contains(name), name);
}
