// The plain CUDA ops against their scalar oracles, over edge shapes. f32 on both sides with different orders of addition: the tolerance is a
// few times sqrt(n) * 2^-24 of the longest sum; discrete results and cache formats are exact.
#include <algorithm>
#include <bit>
#include <memory>

#include "device_array.h"
#include "dsf/test/support.h"
#include "tools/serve/backends/cuda/launch_weights.h"

using namespace dsf;
using namespace dsf::serve;
using test::DeviceArray;
using test::relative_distance;

namespace {

constexpr double kSumBound = 2e-6;  // sums of up to 20,480 products

}  // namespace

TEST_CASE("rmsnorm on the device is the oracle's") {
  NEED_DEVICE("rmsnorm");
  test::Random random(1);
  for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 1}, {1, 31}, {3, 33}, {2, 512}, {5, 5120}, {1, 1280}}) {
    const auto x = random.normal(static_cast<size_t>(rows * dim)), w = random.normal(static_cast<size_t>(dim));
    std::vector<float> want(x.size());
    ops::RmsNormArgs a{x.data(), w.data(), want.data(), rows, dim, 1e-20f};
    ops::rmsnorm_ref(a);
    DeviceArray<float> dx(x), dw(w), dy(x.size());
    a.x = dx.get(), a.w = dw.get(), a.y = dy.get();
    OK(ops::rmsnorm_cuda(a, nullptr));
    CHECK(relative_distance(dy.host(), want) < kSumBound);
  }
}

TEST_CASE("an all-zero row stays finite on the device") {
  NEED_DEVICE("rmsnorm of zeros");
  DeviceArray<float> x(std::vector<float>(64)), w(std::vector<float>(64, 1.0f)), y(64);
  OK(ops::rmsnorm_cuda({x.get(), w.get(), y.get(), 1, 64, 1e-20f}, nullptr));
  CHECK(y.host() == std::vector<float>(64));
}

TEST_CASE("two norms in one launch, one of them rotated: rmsnorm and rope one after the other") {
  NEED_DEVICE("norm_rows");
  test::Random random(12);
  const auto freq = ops::rope_frequencies(64, 10000, {});
  const std::vector<int64_t> positions{0, 127, 1048575};
  const auto rows = static_cast<int64_t>(positions.size());
  for (const auto& [plain, rotated] : {std::pair<int64_t, int64_t>{1280, 512}, {5120, 128}, {33, 90}}) {
    const auto x = random.normal(static_cast<size_t>(rows * plain)), kv = random.normal(static_cast<size_t>(rows * rotated)), w = random.normal(static_cast<size_t>(std::max(plain, rotated)));
    std::vector<float> want(x.size()), want_kv(kv.size());
    ops::rmsnorm_ref({x.data(), w.data(), want.data(), rows, plain, 1e-20f});
    ops::rmsnorm_ref({kv.data(), w.data(), want_kv.data(), rows, rotated, 1e-20f});
    ops::rope_ref({want_kv.data(), positions.data(), freq.data(), rows, 1, rotated, 64, false});
    DeviceArray<float> dx(x), dkv(kv), dw(w), df(freq);
    DeviceArray<int64_t> dp(positions);
    const ops::NormRows tasks[] = {{.norm = {dx.get(), dw.get(), dx.get(), rows, plain, 1e-20f}},
                                   {.norm = {dkv.get(), dw.get(), dkv.get(), rows, rotated, 1e-20f}, .positions = dp.get(), .freq = df.get(), .rope_dim = 64}};
    OK(ops::norm_rows_cuda(tasks, nullptr));
    CHECK(relative_distance(dx.host(), want) < kSumBound);
    CHECK(relative_distance(dkv.host(), want_kv) < kSumBound);
  }
}

TEST_CASE("rope on the device, forward and back, at small and large positions") {
  NEED_DEVICE("rope");
  test::Random random(2);
  for (const bool yarn : {false, true}) {
    const auto freq = ops::rope_frequencies(64, yarn ? 160000 : 10000, {yarn, 16, 32, 1, 65536});
    const std::vector<int64_t> positions{0, 1, 127, 4095, 65536, 1048575};
    const auto rows = static_cast<int64_t>(positions.size());
    auto want = random.normal(static_cast<size_t>(rows * 3 * 128));
    DeviceArray<float> x(want), f(freq);
    DeviceArray<int64_t> p(positions);
    for (const bool inverse : {false, true}) {
      ops::rope_ref({want.data(), positions.data(), freq.data(), rows, 3, 128, 64, inverse});
      OK(ops::rope_cuda({x.get(), p.get(), f.get(), rows, 3, 128, 64, inverse}, nullptr));
      CHECK(relative_distance(x.host(), want) < 1e-6);
    }
  }
}

TEST_CASE("the cache formats are bit-equal on the device") {
  NEED_DEVICE("fake_quant");
  test::Random random(3);
  for (const auto format : {ops::FakeQuant::kWindow, ops::FakeQuant::kCompressed, ops::FakeQuant::kIndex}) {
    for (const float sigma : {1e-6f, 0.02f, 1.0f, 300.0f}) {
      auto want = random.normal(512 * 5, sigma);
      std::fill(want.begin(), want.begin() + 32, 0.0f);
      DeviceArray<float> x(want);
      ops::fake_quant_ref({want.data(), static_cast<int64_t>(want.size()), format});
      OK(ops::fake_quant_cuda({x.get(), static_cast<int64_t>(want.size()), format}, nullptr));
      CHECK(x.host() == want);
    }
  }
}

TEST_CASE("hyper_step is expand, mix, collapse and norm, and a row does not depend on its neighbours") {
  NEED_DEVICE("hyper_step");
  constexpr int64_t kS = 4, kM = 24;
  test::Random random(4);
  for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 128}, {3, 160}, {17, 5120}, {1, 5120}, {33, 256}}) {
    const auto n = [](int64_t v) { return static_cast<size_t>(v); };
    auto x = random.normal(n(rows * kS * dim));
    const auto y = random.normal(n(rows * dim)), post_in = random.normal(n(rows * kS)), comb_in = random.normal(n(rows * kS * kS), 0.5f);
    const auto fn = random.normal(n(kM * kS * dim), 0.02f), scale = random.normal(3), base = random.normal(kM), pre_in = random.normal(n(rows * kS)), norm = random.normal(n(dim));
    DeviceArray<float> dx(x), dy(y), dpost(post_in), dcomb(comb_in), dfn(fn), dscale(scale), dbase(base), dpre_in(pre_in), dnorm(norm), dpre(n(rows * kS)), dout(n(rows * dim)),
        partial(n(ops::hyper_step_workspace(rows, dim)));

    std::vector<float> pre(n(rows * kS)), post(pre.size()), comb(n(rows * kS * kS)), out(n(rows * dim));
    ops::hyper_expand_ref({y.data(), post_in.data(), comb_in.data(), x.data(), rows, kS, dim});
    ops::hyper_mix_ref({x.data(), fn.data(), scale.data(), base.data(), pre.data(), post.data(), comb.data(), rows, kS, dim, 20, 1e-6f, 1e-20f});
    ops::hyper_collapse_ref({x.data(), pre_in.data(), out.data(), rows, kS, dim});
    ops::rmsnorm_ref({out.data(), norm.data(), out.data(), rows, dim, 1e-20f});

    ops::HyperStepArgs a{.y = dy.get(), .post_in = dpost.get(), .comb_in = dcomb.get(), .x = dx.get(), .fn = dfn.get(), .scale = dscale.get(), .base = dbase.get(), .pre = dpre.get(),
                         .post = dpost.get(), .comb = dcomb.get(), .pre_in = dpre_in.get(), .norm = dnorm.get(), .out = dout.get(), .n_rows = rows, .n_streams = kS, .dim = dim};
    OK(ops::hyper_step_cuda(a, partial.get(), nullptr));
    CHECK(relative_distance(dx.host(), x) < kSumBound);
    CHECK(relative_distance(dpre.host(), pre) < 1e-5);
    CHECK(relative_distance(dpost.host(), post) < 1e-5);
    CHECK(relative_distance(dcomb.host(), comb) < 1e-5);
    CHECK(relative_distance(dout.host(), out) < 1e-5);

    // The last row alone, from the expanded streams: the same bits.
    const auto all_pre = dpre.host(), all_out = dout.host(), streams = dx.host();
    DeviceArray<float> one_x(std::vector<float>(streams.end() - kS * dim, streams.end())), one_pre_in(std::vector<float>(pre_in.end() - kS, pre_in.end())), one_pre(kS), one_post(kS), one_comb(kS * kS),
        one_out(n(dim));
    a.y = nullptr, a.x = one_x.get(), a.pre = one_pre.get(), a.post = one_post.get(), a.comb = one_comb.get(), a.pre_in = one_pre_in.get(), a.out = one_out.get(), a.n_rows = 1;
    OK(ops::hyper_step_cuda(a, partial.get(), nullptr));
    CHECK(one_pre.host() == std::vector<float>(all_pre.end() - kS, all_pre.end()));
    CHECK(one_out.host() == std::vector<float>(all_out.end() - dim, all_out.end()));
  }
}

namespace {
enum class Form { kF32, kBf16, kF16 };
// Weights that the form holds exactly: eight significant bits of a magnitude between 2^-8 and 2^-4.
uint16_t half_of(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 127 + 15) << 10) | (bits >> 13 & 0x3ff));
}
}  // namespace

TEST_CASE("linear: f32, bf16 and fp16 weights, every row count gives the same bits") {
  NEED_DEVICE("linear");
  test::Random random(5);
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{8, 1}, {256, 5}, {264, 33}, {5120, 384}}) {
    constexpr int64_t kRows = 45;
    const auto x = random.normal(static_cast<size_t>(kRows * in));
    std::vector<float> w(static_cast<size_t>(out * in));
    for (float& v : w) v = std::bit_cast<float>(static_cast<uint32_t>(random.below(2) << 31 | (119 + random.below(4)) << 23 | random.below(128) << 16));
    std::vector<uint16_t> wb(w.size()), wh(w.size());
    for (size_t i = 0; i < w.size(); ++i) wb[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(w[i]) >> 16), wh[i] = half_of(w[i]);
    std::vector<float> want(static_cast<size_t>(kRows * out));
    ops::linear_ref({x.data(), w.data(), want.data(), kRows, in, out, in, out});
    DeviceArray<float> dx(x), dw(w);
    DeviceArray<uint16_t> dwb(wb), dwh(wh);
    for (const Form form : {Form::kF32, Form::kBf16, Form::kF16}) {
      std::vector<float> all;
      for (const int64_t rows : {kRows, int64_t{9}, int64_t{8}, int64_t{3}, int64_t{1}}) {
        DeviceArray<float> dy(static_cast<size_t>(rows * out));
        const ops::HalfWeights half{.bf16 = form == Form::kBf16 ? dwb.get() : nullptr, .f16 = form == Form::kF16 ? dwh.get() : nullptr};
        OK(ops::linear_weights_cuda({dx.get(), dw.get(), dy.get(), rows, in, out, in, out}, half, nullptr));
        const auto got = dy.host();
        if (rows == kRows) all = got;
        CHECK(got == std::vector<float>(all.begin(), all.begin() + rows * out));
      }
      CHECK(relative_distance(all, want) < kSumBound);
    }
  }
  CHECK(ops::linear_cuda({nullptr, nullptr, nullptr, 1, 7, 1, 7, 1}, nullptr, nullptr).error().code == Code::kUsage);
}

TEST_CASE("kv_compress pools and norms groups of one and two, and leaves rows that close none at zero") {
  NEED_DEVICE("kv_compress");
  test::Random random(6);
  for (const int64_t ratio : {1, 2}) {
    constexpr int64_t kRing = 16, kDim = 512, kGroups = 5;
    const auto value = random.normal(2 * kRing * kDim), gate = random.normal(2 * kRing * kDim, 2), norm = random.normal(kDim);
    std::vector<float> want((kGroups + 1) * kDim);
    std::vector<int64_t> first{-1}, offset{0};
    for (int64_t g = 5; g < 5 + kGroups; ++g) first.push_back(g * ratio), offset.push_back(kRing);  // the second session's ring
    ops::kv_compress_ref({value.data() + kRing * kDim, ratio == 2 ? gate.data() + kRing * kDim : nullptr, norm.data(), want.data() + kDim, 5, kGroups, ratio, kRing, kDim, 1e-20f});
    DeviceArray<float> dv(value), dg(gate), dn(norm), dl(want.size());
    DeviceArray<int64_t> df(first), doff(offset);
    OK(ops::kv_compress_rows_cuda({.value = dv.get(), .gate = ratio == 2 ? dg.get() : nullptr, .norm = dn.get(), .latent = dl.get(), .first_position = df.get(), .ring_offset = doff.get(),
                                   .n_rows = kGroups + 1, .ratio = ratio, .ring_rows = kRing, .dim = kDim, .eps = 1e-20f}, nullptr));
    CHECK(relative_distance(dl.host(), want) < kSumBound);
  }
}

TEST_CASE("sparse attention: window, selection, empty lists, every head width") {
  NEED_DEVICE("sparse_attention");
  test::Random random(9);
  for (const auto& [heads, width, n_selected] : {std::tuple<int64_t, int64_t, int64_t>{64, 512, 512}, {4, 128, 6}, {3, 64, 0}, {9, 32, 70}}) {
    constexpr int64_t kRing = 136, kWindow = 128, kStored = 600;
    const std::vector<int64_t> begin{0, 0, 200, 50}, end{0, 1, 328, 51};
    const auto rows = static_cast<int64_t>(begin.size());
    const auto n = [](int64_t v) { return static_cast<size_t>(v); };
    std::vector<int32_t> selection(n(rows * n_selected), -1);
    for (int64_t r = 1; r < rows; ++r) {
      const int64_t count = r == 3 ? n_selected / 2 : n_selected;
      for (int64_t i = 0; i < count; ++i) selection[n(r * n_selected + i)] = static_cast<int32_t>(i * kStored / std::max<int64_t>(n_selected, 1));
    }
    const std::vector<int64_t> window_offset{0, kRing, kRing, 0}, rows_offset{0, kStored, 0, kStored};
    const auto q = random.normal(n(rows * heads * width)), window = random.normal(n(2 * kRing * width)), stored = random.normal(n(2 * kStored * width)), sink = random.normal(n(heads));
    std::vector<float> want(q.size());
    ops::SparseAttentionArgs a{q.data(), window.data(), begin.data(), end.data(), stored.data(), selection.data(), sink.data(), want.data(), rows, heads, width, kRing, n_selected,
                               1.0f / std::sqrt(static_cast<float>(width)), window_offset.data(), rows_offset.data()};
    ops::sparse_attention_ref(a);
    DeviceArray<float> dq(q), dw(window), dst(stored), dsink(sink), dout(want.size()), partial(n(ops::sparse_attention_workspace(rows, heads, width, kWindow, n_selected)));
    DeviceArray<int64_t> db(begin), de(end), dwo(window_offset), dro(rows_offset);
    DeviceArray<int32_t> dsel(selection);
    a.window_offset = dwo.get(), a.rows_offset = dro.get();
    a.q = dq.get(), a.window = dw.get(), a.window_begin = db.get(), a.window_end = de.get(), a.rows = dst.get(), a.selection = dsel.get(), a.sink = dsink.get(), a.out = dout.get();
    OK(ops::sparse_attention_cuda(a, kWindow, partial.get(), nullptr));
    CHECK(relative_distance(dout.host(), want) < 1e-5);
    const std::vector<int64_t> positions{0, 1, 328, 1048575};
    const auto freq = ops::rope_frequencies(32, 10000, {});
    ops::rope_ref({want.data(), positions.data(), freq.data(), rows, heads, width, 32, true});
    DeviceArray<int64_t> dp(positions);
    DeviceArray<float> df(freq);
    OK(ops::sparse_attention_cuda(a, kWindow, partial.get(), nullptr, {dp.get(), df.get(), 32}));
    CHECK(relative_distance(dout.host(), want) < 1e-5);
  }
}

TEST_CASE("the router chooses the oracle's experts") {
  NEED_DEVICE("moe_route");
  test::Random random(10);
  for (const auto& [experts, k, dim] : {std::tuple<int64_t, int64_t, int64_t>{384, 6, 5120}, {6, 2, 128}, {4, 4, 8}, {128, 3, 256}, {512, 32, 64}}) {
    constexpr int64_t kRows = 21;
    const auto x = random.normal(static_cast<size_t>(kRows * dim)), gate = random.normal(static_cast<size_t>(experts * dim), 0.05f), bias = random.normal(static_cast<size_t>(experts), 0.5f);
    std::vector<int32_t> ids(static_cast<size_t>(kRows * k));
    std::vector<float> weights(ids.size());
    ops::MoeRouteArgs a{x.data(), gate.data(), bias.data(), ids.data(), weights.data(), kRows, dim, experts, k, 1, 1.5f, true};
    ops::moe_route_ref(a);
    DeviceArray<float> dx(x), dg(gate), db(bias), dwt(weights.size()), logits(static_cast<size_t>(kRows * experts));
    DeviceArray<int32_t> di(ids.size());
    a.x = dx.get(), a.gate = dg.get(), a.bias = db.get(), a.ids = di.get(), a.weights = dwt.get();
    OK(ops::moe_route_cuda(a, logits.get(), nullptr));
    CHECK(di.host() == ids);  // random scores: no near-ties at this seed
    CHECK(relative_distance(dwt.host(), weights) < 1e-5);
  }
}

TEST_CASE("dense experts and the shared one") {
  NEED_DEVICE("moe_experts");
  test::Random random(11);
  constexpr int64_t kRows = 3, kDim = 256, kInter = 96, kSharedInter = 128, kExperts = 5, kK = 2;
  const auto x = random.normal(kRows * kDim, 4), weights = random.normal(kRows * kK);
  const std::vector<int32_t> ids{0, 4, 1, 2, 2, 3};
  std::vector<std::vector<float>> w;
  for (int64_t e = 0; e <= kExperts; ++e) {
    const int64_t inter = e < kExperts ? kInter : kSharedInter;
    for (int part = 0; part < 3; ++part) w.push_back(random.normal(static_cast<size_t>(inter * kDim), 0.2f));
  }
  std::vector<ops::ExpertWeights> host, device;
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
  for (size_t e = 0; e <= kExperts; ++e) {
    const int64_t inter = e < kExperts ? kInter : kSharedInter;
    for (size_t part = 0; part < 3; ++part) arrays.push_back(std::make_unique<DeviceArray<float>>(w[e * 3 + part]));
    host.push_back({w[e * 3].data(), w[e * 3 + 1].data(), w[e * 3 + 2].data(), inter});
    device.push_back({arrays[e * 3]->get(), arrays[e * 3 + 1]->get(), arrays[e * 3 + 2]->get(), inter});
  }
  std::vector<float> want(kRows * kDim);
  ops::MoeExpertsArgs a{x.data(), ids.data(), weights.data(), host.data(), &host[kExperts], want.data(), kRows, kDim, kK, 1.5f};
  ops::moe_experts_ref(a);
  DeviceArray<float> dx(x), dwt(weights), dy(want.size()), hidden(kRows * (kK + 1) * kSharedInter);
  DeviceArray<int32_t> di(ids);
  DeviceArray<ops::ExpertWeights> de(device);
  a.x = dx.get(), a.ids = di.get(), a.weights = dwt.get(), a.experts = de.get(), a.shared = de.get() + kExperts, a.y = dy.get();
  OK(ops::moe_experts_cuda(a, kSharedInter, hidden.get(), nullptr));
  CHECK(relative_distance(dy.host(), want) < kSumBound);
}

TEST_CASE("the Engram gate opens as the oracle's, and stays shut for dead rows") {
  NEED_DEVICE("engram_gate");
  test::Random random(12);
  constexpr int64_t kRows = 3, kS = 4, kDim = 5120;
  auto want = random.normal(kRows * kS * kDim);
  const auto kv = random.normal(kRows * (kS + 1) * kDim), qw = random.normal(kS * kDim), kw = random.normal(kS * kDim);
  const std::vector<uint8_t> dead{0, 1, 0};
  DeviceArray<float> x(want), dkv(kv), dq(qw), dk(kw);
  DeviceArray<uint8_t> dd(dead);
  ops::engram_gate_ref({kv.data(), qw.data(), kw.data(), dead.data(), want.data(), kRows, kS, kDim, 1e-20f});
  OK(ops::engram_gate_cuda({dkv.get(), dq.get(), dk.get(), dd.get(), x.get(), kRows, kS, kDim, 1e-20f}, nullptr));
  CHECK(relative_distance(x.host(), want) < kSumBound);
}
