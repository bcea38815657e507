#include "dsf/model/split.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

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

Split split(const Config& c, int world, StoredForm form = StoredForm::kExl3) {
  auto s = Split::create(c, world, form);
  REQUIRE_MESSAGE(s, (s ? std::string() : s.error().line()));
  return *s;
}

// The tensors an EXL3 pack holds of packed matrix P.
std::vector<TensorSpec> parts_of(const PackedSpec& p) {
  return {{p.name + ".trellis", tensor::DType::kI16, {p.in / 16, p.out / 16, 48}},
          {p.name + ".suh", tensor::DType::kF16, {p.in}},
          {p.name + ".svh", tensor::DType::kF16, {p.out}},
          {p.name + ".mul1", tensor::DType::kI32, {}}};
}

std::vector<TensorSpec> pack_tensors(const Config& c) {
  std::vector<TensorSpec> out;
  for (const PackedSpec& p : exl3_matrices(c))
    for (TensorSpec& t : parts_of(p)) out.push_back(std::move(t));
  return out;
}

// Whether the ranks' parts cover the cut axis once, in order, or every rank has the whole.
bool union_is_whole(const Split& s, const Config& c, const TensorSpec& t, bool& is_cut) {
  int64_t at = 0, wholes = 0, empties = 0;
  for (int r = 0; r < s.world(); ++r) {
    const auto cut = cut_of(s, c, t.name, t.shape, r);
    if (!cut) return false;
    if (cut->axis < 0) {
      ++wholes;
    } else if (cut->range.size() == 0 && cut->range.begin == 0 && at == 0) {
      ++empties;
    } else {
      if (cut->range.begin != at || cut->range.end < at) return false;
      at = cut->range.end;
      if (r == s.world() - 1 && at != t.shape[static_cast<size_t>(cut->axis)]) return false;
    }
  }
  is_cut = wholes != s.world();
  return wholes == s.world() || (wholes == 1 && empties == s.world() - 1) || (wholes == 0 && at > 0);
}

}  // namespace

TEST_CASE("two ranks of the release hold what the plan of the model names") {
  const Split s = split(release(), 2);
  CHECK(s.share(0).heads == Range{0, 32});
  CHECK(s.share(1).heads == Range{32, 64});
  CHECK(s.share(1).groups == Range{4, 8});
  CHECK(s.share(0).expert == Range{0, 1152});
  CHECK(s.share(1).shared == Range{1152, 2304});
  CHECK(s.share(1).vocab == Range{64640, 129280});
  CHECK(s.share(1).columns == Range{12, 24});
}

TEST_CASE("uneven shares differ by one block or group, the larger ones first") {
  const Config c = release();
  const Split three = split(c, 3), four = split(c, 4);
  CHECK(three.share(0).groups.size() == 3);
  CHECK(three.share(2).groups == Range{6, 8});
  CHECK(three.share(2).vocab == Range{86272, 129280});
  CHECK(four.share(0).expert == Range{0, 640});  // 18 blocks over 4 ranks
  CHECK(four.share(2).expert == Range{1280, 1792});
  CHECK(split(c, 4, StoredForm::kNative).share(0).expert == Range{0, 640});
  CHECK(split(c, 24, StoredForm::kNative).share(23).expert ==
        Range{2240, 2304});  // blocks of 64
}

TEST_CASE("the union of the ranks is the whole, for every tensor of the release and every world size") {
  const Config c = release();
  const std::vector<TensorSpec> native = native_tensors(c), packed = pack_tensors(c);
  for (const auto& [tensors, form] : {std::pair(&native, StoredForm::kNative), std::pair(&packed, StoredForm::kExl3)}) {
    for (const int world : {1, 2, 3, 4, 8}) {
      const Split s = split(c, world, form);
      int64_t cuts = 0, bad = 0;
      for (const TensorSpec& t : *tensors) {
        // The experts of one layer stand for all.
        if (t.name.find(".ffn.experts.") != std::string::npos && !t.name.starts_with("layers.7.")) continue;
        bool is_cut = false;
        const bool whole = union_is_whole(s, c, t, is_cut);
        if (!whole) MESSAGE(t.name);
        bad += whole ? 0 : 1;
        cuts += is_cut ? 1 : 0;
      }
      CAPTURE(world);
      CHECK(bad == 0);
      CHECK((world == 1 || cuts > 1000));
    }
  }
}

TEST_CASE("stored axes: scales by 32, FP4 pairs by 2, tiles by 16, the scale vector of the other axis whole") {
  const Config c = release();
  const Split s = split(c, 2);
  const auto cut = [&](const char* name, const tensor::Shape& shape) {
    const auto r = cut_of(s, c, name, shape, 1);
    REQUIRE_MESSAGE(r, (r ? std::string() : r.error().line()));
    return *r;
  };
  const auto is = [](const TensorCut& a, int axis, Range range) { return a.axis == axis && a.range == range; };
  CHECK(is(cut("layers.3.attn.wq_b.weight", {32768, 1280}), 0, {16384, 32768}));
  CHECK(is(cut("layers.3.attn.wq_b.scale", {1024, 40}), 0, {512, 1024}));
  CHECK(is(cut("layers.3.attn.wo_b.weight", {5120, 8192}), 1, {4096, 8192}));
  CHECK(is(cut("layers.3.attn.wo_b.scale", {160, 256}), 1, {128, 256}));
  CHECK(is(cut("layers.3.attn.wo_a.weight", {8192, 4096}), 0, {4096, 8192}));
  CHECK(is(cut("layers.3.attn.wo_a.slice.3.trellis", {256, 64, 80}), 0, {0, 0}));
  CHECK(cut("layers.3.attn.wo_a.slice.4.trellis", {256, 64, 80}).axis == -1);
  CHECK(is(cut("layers.3.attn.attn_sink", {64}), 0, {32, 64}));
  CHECK(is(cut("mtp.1.ffn.experts.7.w2.weight", {5120, 1152}), 1, {576, 1152}));
  CHECK(is(cut("mtp.1.ffn.experts.7.w2.scale", {5120, 72}), 1, {36, 72}));
  CHECK(is(cut("mtp.1.ffn.experts.7.w1.scale", {2304, 160}), 0, {1152, 2304}));
  CHECK(is(cut("layers.3.ffn.experts.7.w1.trellis", {320, 144, 48}), 1, {72, 144}));
  CHECK(is(cut("layers.3.ffn.experts.7.w2.trellis", {144, 320, 48}), 0, {72, 144}));
  CHECK(cut("layers.3.ffn.experts.7.w1.suh", {5120}).axis == -1);
  CHECK(is(cut("layers.3.ffn.experts.7.w1.svh", {2304}), 0, {1152, 2304}));
  CHECK(cut("layers.3.ffn.experts.7.w2.svh", {5120}).axis == -1);
  CHECK(is(cut("layers.3.ffn.experts.7.w2.suh", {2304}), 0, {1152, 2304}));
  CHECK(cut("layers.3.ffn.experts.7.w2.mul1", {}).axis == -1);
  CHECK(is(cut("head.weight", {129280, 5120}), 0, {64640, 129280}));
  for (const char* whole : {"embed.weight", "layers.3.attn.wq_a.weight", "layers.8.attn.indexer.wq_b.weight",
                            "layers.1.engram.wkv.weight", "mtp.0.main_proj.weight", "mtp.2.markov_head.head.weight",
                            "layers.3.ffn.gate.weight", "layers.8.attn.compressor.wkv.weight"})
    CHECK(cut(whole, {4096, 1280}).axis == -1);
  CHECK(is(cut("vision.norm.weight", {1024}), 0, {0, 0}));
  CHECK(cut_of(s, c, "layers.3.attn.wq_b.weight", {77, 1280}, 1).error().code == Code::kContent);
}

TEST_CASE("what cannot be cut is refused by name") {
  Config c = release();
  for (const int world : {0, -1, 9999}) CHECK(Split::create(c, world, StoredForm::kExl3).error().cls == "world");
  CHECK_FALSE(Split::create(c, 20, StoredForm::kExl3));  // 24 hash heads in shares of two leave ranks without any
  c.moe_intermediate_size = 2304 + 32;
  const auto odd = Split::create(c, 2, StoredForm::kExl3);
  REQUIRE_FALSE(odd);
  CHECK(odd.error().code == Code::kContent);
  CHECK(odd.error().subject == "moe_intermediate_size");
  CHECK(Split::create(c, 2, StoredForm::kNative));
}

TEST_CASE("the digest tells plans and configurations apart") {
  const Config c = release();
  const std::string two = split(c, 2).digest(c);
  CHECK(two.size() == 64);
  CHECK(two == split(c, 2).digest(c));
  CHECK(two != split(c, 3).digest(c));
  CHECK(two != split(c, 2, StoredForm::kNative).digest(c));
  Config other = c;
  other.index_topk += 1;
  CHECK(two != split(c, 2).digest(other));
  other = c;
  other.swiglu_limit = 10.000001;
  CHECK(two != split(c, 2).digest(other));
  CHECK(split(c, 2).text().find(
            "rank 1 groups 4-8 heads 32-64 expert 1152-2304 shared 1152-2304 vocab 64640-129280 columns 12-24\n") !=
        std::string::npos);
}
