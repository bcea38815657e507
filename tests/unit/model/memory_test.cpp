#include "dsf/model/memory.h"

#include <doctest/doctest.h>

#include <cmath>

#include "dsf/base/numeric.h"
#include "dsf/model/split.h"
#include "dsf/model/weights.h"
#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::model;

namespace {
Config release() {
  auto c = load_config(test::golden() / "config" / "release.json");
  REQUIRE(c);
  return *c;
}
double gib(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }

// Widths of the published 2.9 bpw pack (model.md 2).
int bits_of(const std::string& name) {
  if (name.starts_with("mtp.")) return 4;
  if (name == "head") return 6;
  const int layer = static_cast<int>(*parse_u64(name.substr(7, name.find('.', 7) - 7)));
  if (name.find("ffn.experts.") != std::string::npos) return layer >= 18 && layer <= 22 ? 2 : 3;
  if (name.find("shared_experts") != std::string::npos) return layer <= 10 || layer >= 30 ? 5 : 4;
  return 5;
}
std::vector<StoredTensor> pack_tensors(const Config& c) {
  std::vector<StoredTensor> out;
  for (const PackedSpec& p : exl3_matrices(c)) out.push_back({p.name + ".trellis", static_cast<uint64_t>(p.out * p.in * bits_of(p.name) / 8), 0});
  for (const auto& list : {text_weights(c), dspark_weights(c)})
    for (const Weight& w : list)
      if (!w.packed_in_exl3 && w.kind != WeightKind::kTableFp8) {
        const auto n = static_cast<uint64_t>(*tensor::element_count(w.shape));
        out.push_back({w.name, n * tensor::dtype_size(w.dtype), n});
      }
  return out;
}
}  // namespace

TEST_CASE("the cache costs 890 bytes a token in the reference format") {
  CHECK(cache_bytes_per_token(release(), Residence::kStored) == 890);
  CHECK(cache_bytes_per_token(release(), Residence::kExpanded) == 6400);
}

TEST_CASE("the published pack fits the published weight bytes per rank") {
  const Config c = release();
  const auto plan = plan_memory(c, pack_tensors(c), {.residence = Residence::kStored, .rank = 1, .world_size = 2, .max_model_len = 1048576});
  REQUIRE(plan);
  // "About 98 GiB per rank without vision (routed experts 91.3)": embedding halved or whole moves it by 0.6.
  CHECK(gib(plan->weights) > 96.0);
  CHECK(gib(plan->weights) < 99.5);
  uint64_t experts = 0;
  for (const StoredTensor& t : pack_tensors(c))
    if (t.name.starts_with("layers.") && t.name.find(".ffn.experts.") != std::string::npos) experts += resident_bytes(t, 1, 2);
  CHECK(gib(experts) > 90.5);
  CHECK(gib(experts) < 92.0);
  CHECK(plan->caches > 890u * 1048576u);
  CHECK(gib(plan->total()) < 119.7);  // the smaller of the two nodes' memory
}

TEST_CASE("the cuts of the split are the bytes that the plan counts, rank by rank") {
  const Config c = release();
  for (const int world : {2, 4}) {
    const auto split = Split::create(c, world, StoredForm::kExl3);
    REQUIRE(split);
    for (int rank = 0; rank < world; ++rank) {
      uint64_t cut_bytes = 0, planned = 0, experts = 0;
      for (const PackedSpec& p : exl3_matrices(c)) {
        const int64_t words = 16 * bits_of(p.name);
        const tensor::Shape shape{p.in / 16, p.out / 16, words};
        const auto cut = cut_of(*split, c, p.name + ".trellis", shape, rank);
        REQUIRE(cut);
        const auto whole = static_cast<uint64_t>(p.in / 16 * (p.out / 16) * words * 2);
        const uint64_t own = cut->axis < 0 ? whole : whole / static_cast<uint64_t>(shape[static_cast<size_t>(cut->axis)]) * static_cast<uint64_t>(cut->range.size());
        cut_bytes += own;
        if (p.name.starts_with("layers.") && p.name.find(".ffn.experts.") != std::string::npos) experts += own;
        planned += resident_bytes({p.name + ".trellis", whole, 0}, rank, world);
      }
      CAPTURE(world);
      CAPTURE(rank);
      // Where 18 blocks of expert width do not divide evenly the plan's even share is off by half a block in 4.5.
      const double tolerance = world == 2 ? 1e-3 : 0.12;
      CHECK(std::fabs(static_cast<double>(cut_bytes) / static_cast<double>(planned) - 1) < tolerance);
      if (world == 2) CHECK(gib(experts) == doctest::Approx(91.3).epsilon(0.005));
    }
  }
}

TEST_CASE("Engram tables cost nothing, vision stands on rank 0 alone, splits share") {
  CHECK(resident_bytes({"layers.1.engram.embed.weight", 100, 100}, 0, 1) == 0);
  CHECK(resident_bytes({"vision.norm.weight", 100, 50}, 0, 2) == 100);
  CHECK(resident_bytes({"vision.norm.weight", 100, 50}, 1, 2) == 0);
  CHECK(resident_bytes({"layers.0.ffn.experts.7.w1.weight", 101, 101}, 1, 2) == 51);
  CHECK(resident_bytes({"head.trellis", 100, 50}, 1, 2) == 50);
  CHECK(resident_bytes({"mtp.2.markov_head.head.weight", 100, 50}, 1, 2) == 100);
  CHECK(resident_bytes({"layers.0.attn.wkv.weight", 100, 100}, 1, 2) == 100);
}

TEST_CASE("two ranks together hold everything, the split part once") {
  const Config c = release();
  uint64_t whole = 0, both = 0;
  for (const StoredTensor& t : pack_tensors(c)) {
    whole += resident_bytes(t, 0, 1);
    both += resident_bytes(t, 0, 2) + resident_bytes(t, 1, 2);
  }
  CHECK(both > whole);
  CHECK(both < whole + whole / 20);
}

TEST_CASE("a request without sense is a usage error, and this machine's memory can be read") {
  const Config c = release();
  CHECK(plan_memory(c, {}, {.rank = 2, .world_size = 2, .max_model_len = 1}).error().code == Code::kUsage);
  CHECK(plan_memory(c, {}, {.max_model_len = 0}).error().code == Code::kUsage);
  CHECK(plan_memory(c, {}, {.max_model_len = INT64_MAX}).error().code == Code::kUsage);
  const auto memory = available_memory();
  REQUIRE(memory);
  CHECK(*memory > 0);
}
