// The ops over packed caches and over long contexts against their oracles: packing, scores, selection in one and two
// rounds, attention on tensor cores. Packed and f32 caches must give the same bits, and a row the same bits whatever
// stands beside it.
#include <bit>

#include "device_array.h"
#include "dsf/engram/rows.h"
#include "dsf/test/support.h"
#include "tools/serve/backends/cuda/launch_choice.h"
#include "tools/serve/engine/choice.h"

using namespace dsf;
using namespace dsf::serve;
using test::DeviceArray;

namespace {

size_t n(int64_t v) { return static_cast<size_t>(v); }

std::vector<int64_t> places(int64_t count) {
  std::vector<int64_t> out(n(count));
  for (int64_t i = 0; i < count; ++i) out[n(i)] = i;
  return out;
}

// Values whose blocks of 32 differ in size, as cached ones do.
std::vector<float> blocky(test::Random& random, int64_t count) {
  auto v = random.normal(n(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] *= std::exp2(static_cast<float>(i / 32 * 7 % 9) - 4.0f);
  return v;
}

std::vector<uint8_t> packed_on_device(const std::vector<float>& rows, int64_t dim, ops::FakeQuant format) {
  const int64_t count = std::ssize(rows) / dim;
  DeviceArray<float> from(rows);
  DeviceArray<int64_t> place(places(count));
  DeviceArray<uint8_t> to(n(count * ops::packed_row_bytes(format, dim)));
  OK(ops::pack_rows_cuda({from.get(), place.get(), to.get(), count, dim, format}, nullptr));
  return to.host();
}

}  // namespace

TEST_CASE("packed rows are the oracle's bytes, and unpack to fake_quant's values") {
  test::Random random(21);
  for (const auto format : {ops::FakeQuant::kWindow, ops::FakeQuant::kCompressed, ops::FakeQuant::kIndex}) {
    for (const int64_t dim : {32, 128, 512}) {
      auto rows = blocky(random, 7 * dim);
      std::fill(rows.begin(), rows.begin() + 32, 0.0f);
      const int64_t bytes = ops::packed_row_bytes(format, dim);
      const auto place = places(7);
      std::vector<uint8_t> want(n(7 * bytes));
      ops::pack_rows_ref({rows.data(), place.data(), want.data(), 7, dim, format});
      std::vector<float> unpacked(rows.size()), quantised = rows;
      for (int64_t r = 0; r < 7; ++r)
        ops::unpack_row_ref(format, want.data() + r * bytes, dim, unpacked.data() + r * dim);
      ops::fake_quant_ref({quantised.data(), std::ssize(quantised), format});
      CHECK(unpacked == quantised);
      if (test::have_device()) CHECK(packed_on_device(rows, dim, format) == want);
    }
  }
  CHECK(ops::packed_row_bytes(ops::FakeQuant::kCompressed, 512) == 288);
  CHECK(ops::packed_row_bytes(ops::FakeQuant::kIndex, 128) == 68);
  if (!test::have_device()) test::skip("packing on the device", "no CUDA device");
}

TEST_CASE("a row with place -1 is not packed") {
  NEED_DEVICE("pack_rows places");
  DeviceArray<float> from(std::vector<float>(64, 1.0f));
  DeviceArray<int64_t> place(std::vector<int64_t>{-1, 0});
  DeviceArray<uint8_t> to(std::vector<uint8_t>(80, 7));
  OK(ops::pack_rows_cuda({from.get(), place.get(), to.get(), 2, 32, ops::FakeQuant::kWindow}, nullptr));
  const auto got = to.host();
  CHECK(got[40] == 7);
  CHECK(got[0] != 7);
}

TEST_CASE("scores of what a row sees are the oracle's, of f32 and of packed keys with the same bits") {
  NEED_DEVICE("index_rows");
  test::Random random(22);
  constexpr int64_t kRows = 3, kBlock = 4, kBlocks = 5;
  for (const auto& [heads, dim, keys] :
       {std::tuple<int64_t, int64_t, int64_t>{32, 128, 1}, {32, 128, 5000}, {8, 128, 129}, {8, 64, 129}, {40, 32, 5}}) {
    for (const bool limited : {false, true}) {
      const std::vector<int64_t> visible{keys, keys / 2, 0}, offset{0, keys - keys / 2, 0};
      auto q = blocky(random, kRows * heads * dim);
      auto k = blocky(random, keys * dim);
      const auto w = random.normal(n(kRows * heads));
      ops::fake_quant_ref({q.data(), std::ssize(q), ops::FakeQuant::kIndex});
      DeviceArray<uint8_t> packed(packed_on_device(k, dim, ops::FakeQuant::kIndex));
      ops::fake_quant_ref({k.data(), std::ssize(k), ops::FakeQuant::kIndex});
      const std::vector<int32_t> blocks{0, 1, 2, 3, 7, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1};
      const int64_t width = limited ? kBlock * kBlocks : keys;
      std::vector<float> want(n(kRows * width), 5.0f);
      ops::IndexRowsArgs a{
          q.data(),    w.data(), k.data(), offset.data(), visible.data(), limited ? blocks.data() : nullptr,
          want.data(), kRows,    heads,    dim,           width,          kBlock,
          kBlocks,     0};
      ops::index_rows_ref(a);
      DeviceArray<float> dq(q), dw(w), dk(k), got(std::vector<float>(want.size(), 5.0f)),
          got_packed(std::vector<float>(want.size(), 5.0f));
      DeviceArray<int64_t> dvisible(visible), doffset(offset);
      DeviceArray<int32_t> dblocks(blocks);
      a.q = dq.get(), a.weight = dw.get(), a.keys = dk.get(), a.keys_offset = doffset.get(), a.visible = dvisible.get(),
      a.score = got.get();
      if (limited) a.blocks = dblocks.get();
      OK(ops::index_rows_cuda(a, nullptr));
      const auto scores = got.host();
      for (size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(want[i]) || want[i] == 5.0f)
          CHECK(scores[i] == want[i]);
        else
          CHECK(std::fabs(scores[i] - want[i]) < 2e-5f * std::fabs(want[i]) + 1e-2f);
      }
      if (!ops::index_rows_packed_fits(heads, dim)) continue;
      a.score = got_packed.get();
      OK(ops::index_rows_packed_cuda(a, packed.get(), nullptr));
      CHECK(got_packed.host() == scores);
      a.skip = keys;
      OK(ops::index_rows_packed_cuda(a, packed.get(), nullptr));  // nothing left to do, nothing written
      CHECK(got_packed.host() == scores);
    }
  }
}

TEST_CASE("selections and candidate blocks are exact in one round and in two, ties to the lower index") {
  NEED_DEVICE("select_rows");
  test::Random random(23);
  constexpr int64_t kRows = 3, kBlock = 8, kBlocks = 37;
  for (const int64_t keys : {1, 7, 8, 512, 513, 1024, 16384, 16385, 40000, 300000}) {
    for (const bool ties : {false, true}) {
      const std::vector<int64_t> visible{keys, keys / 3, 0};
      auto score = random.normal(n(kRows * keys));
      if (ties)
        std::for_each(score.begin(), score.end(), [&](float& s) { s = static_cast<float>(random.below(3)) - 1.0f; });
      auto masked = score;
      for (int64_t r = 0; r < kRows; ++r)
        std::fill(masked.begin() + r * keys + visible[n(r)], masked.begin() + (r + 1) * keys,
                  -std::numeric_limits<float>::infinity());
      DeviceArray<float> ds(score);
      DeviceArray<int64_t> dvisible(visible);
      DeviceArray<float> workspace(n(ops::select_workspace(kRows, keys, 512) +
                                     ops::select_workspace(kRows, (keys + kBlock - 1) / kBlock, kBlocks)));
      std::vector<int32_t> blocks(kRows * kBlocks);
      ops::candidate_blocks_ref({masked.data(), visible.data(), blocks.data(), kRows, keys, kBlock, kBlocks});
      DeviceArray<int32_t> dblocks(blocks.size());
      OK(ops::select_blocks_cuda({ds.get(), dvisible.get(), dblocks.get(), kRows, keys, kBlock, kBlocks},
                                 workspace.get(), nullptr));
      CHECK(dblocks.host() == blocks);
      for (const int64_t k : {1, 6, 512}) {
        std::vector<int32_t> want(n(kRows * k));
        ops::select_rows_ref({score.data(), visible.data(), nullptr, want.data(), kRows, keys, k, 0, 0});
        DeviceArray<int32_t> got(want.size());
        OK(ops::select_rows_cuda({ds.get(), dvisible.get(), nullptr, got.get(), kRows, keys, k, 0, 0}, workspace.get(),
                                 nullptr));
        CHECK(got.host() == want);

        std::vector<float> listed(kRows * kBlocks * kBlock, -std::numeric_limits<float>::infinity());
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t i = 0; i < kBlocks * kBlock; ++i) {
            const int64_t row = int64_t{blocks[n(r * kBlocks + i / kBlock)]} * kBlock + i % kBlock;
            if (row >= 0 && row < visible[n(r)]) listed[n(r * kBlocks * kBlock + i)] = score[n(r * keys + row)];
          }
        }
        ops::select_rows_ref(
            {listed.data(), visible.data(), blocks.data(), want.data(), kRows, kBlocks * kBlock, k, kBlock, kBlocks});
        DeviceArray<float> dl(listed);
        OK(ops::select_rows_cuda(
            {dl.get(), dvisible.get(), dblocks.get(), got.get(), kRows, kBlocks * kBlock, k, kBlock, kBlocks},
            workspace.get(), nullptr));
        CHECK(got.host() == want);
      }
    }
  }
}

TEST_CASE("attention on tensor cores is the oracle's, with the same bits from packed caches and for a row alone") {
  NEED_DEVICE("sparse_attention_mma");
  test::Random random(24);
  for (const auto& [heads, width, n_selected] :
       {std::tuple<int64_t, int64_t, int64_t>{64, 512, 512}, {4, 128, 6}, {3, 128, 0}, {20, 256, 70}}) {
    constexpr int64_t kRing = 136, kWindow = 128, kStored = 600;
    const std::vector<int64_t> begin{0, 0, 200, 50}, end{0, 1, 328, 51}, window_offset{0, kRing, kRing, 0},
        rows_offset{0, kStored, 0, kStored};
    const auto rows = std::ssize(begin);
    std::vector<int32_t> selection(n(rows * n_selected), -1);
    for (int64_t r = 1; r < rows; ++r) {
      for (int64_t i = 0; i < (r == 3 ? n_selected / 2 : n_selected); ++i)
        selection[n(r * n_selected + i)] = static_cast<int32_t>(i * kStored / n_selected);
    }
    const auto q = random.normal(n(rows * heads * width)), sink = random.normal(n(heads));
    auto window = random.normal(n(2 * kRing * width)), stored = random.normal(n(2 * kStored * width), 0.7f);
    DeviceArray<uint8_t> packed_window(packed_on_device(window, width, ops::FakeQuant::kWindow)),
        packed_rows(packed_on_device(stored, width, ops::FakeQuant::kCompressed));
    ops::fake_quant_ref({window.data(), std::ssize(window), ops::FakeQuant::kWindow});
    ops::fake_quant_ref({stored.data(), std::ssize(stored), ops::FakeQuant::kCompressed});
    std::vector<float> want(q.size());
    ops::SparseAttentionArgs a{q.data(),
                               window.data(),
                               begin.data(),
                               end.data(),
                               stored.data(),
                               selection.data(),
                               sink.data(),
                               want.data(),
                               rows,
                               heads,
                               width,
                               kRing,
                               n_selected,
                               1.0f / std::sqrt(static_cast<float>(width)),
                               window_offset.data(),
                               rows_offset.data()};
    ops::sparse_attention_ref(a);
    DeviceArray<float> dq(q), dw(window), ds(stored), dsink(sink), out(want.size()),
        partial(n(ops::sparse_attention_workspace(rows, heads, width, kWindow, n_selected)));
    DeviceArray<int64_t> db(begin), de(end), dwo(window_offset), dro(rows_offset);
    DeviceArray<int32_t> dsel(selection);
    a = {dq.get(), dw.get(), db.get(), de.get(), ds.get(),   dsel.get(), dsink.get(), out.get(),
         rows,     heads,    width,    kRing,    n_selected, a.scale,    dwo.get(),   dro.get()};
    OK(ops::sparse_attention_mma_cuda(a, {}, kWindow, partial.get(), nullptr));
    const auto got = out.host();
    const double distance = test::relative_distance(got, want);
    CHECK_MESSAGE(distance < 1e-5, heads << " heads of " << width << ": " << distance);
    a.window = nullptr, a.rows = nullptr;
    OK(ops::sparse_attention_mma_cuda(a, {packed_window.get(), packed_rows.get()}, kWindow, partial.get(), nullptr));
    CHECK(out.host() == got);
    // The third row alone.
    DeviceArray<float> alone(n(heads * width));
    a.q += 2 * heads * width, a.window_begin += 2, a.window_end += 2, a.selection += 2 * n_selected,
        a.window_offset += 2, a.rows_offset += 2, a.out = alone.get(), a.n_rows = 1;
    OK(ops::sparse_attention_mma_cuda(a, {packed_window.get(), packed_rows.get()}, kWindow, partial.get(), nullptr));
    CHECK(alone.host() == std::vector<float>(got.begin() + 2 * heads * width, got.begin() + 3 * heads * width));
  }
}

TEST_CASE("Engram records unpack to the values of the table, bit for bit") {
  NEED_DEVICE("engram_rows");
  test::Random random(25);
  for (const int64_t dim : {64, 256}) {
    constexpr int64_t kRecords = 53;
    std::vector<uint8_t> records(n(kRecords * (dim + dim / 32)));
    for (uint8_t& b : records) b = static_cast<uint8_t>(random.below(127));
    std::vector<float> want(n(kRecords * dim));
    for (int64_t r = 0; r < kRecords; ++r) {
      const auto record = std::as_bytes(std::span(records)).subspan(n(r * (dim + dim / 32)), n(dim + dim / 32));
      engram::dequantize_row(record, std::span(want).subspan(n(r * dim), n(dim)));
    }
    DeviceArray<uint8_t> from(records);
    DeviceArray<float> to(want.size());
    OK(ops::engram_rows_cuda({from.get(), to.get(), kRecords, dim}, nullptr));
    CHECK(to.host() == want);
  }
}

TEST_CASE("the device chooses the sampler's tokens: greedy, filters, ties, flat and broken rows") {
  NEED_DEVICE("choose_token");
  test::Random random(26);
  int64_t undecided = 0, rows_seen = 0;
  for (const int64_t vocab : {5, 256, 1500, 129280}) {
    std::vector<ops::TokenChoice> choices;
    std::vector<float> logits;
    const auto add = [&](ops::TokenChoice c, const std::vector<float>& row) {
      choices.push_back(c);
      logits.insert(logits.end(), row.begin(), row.end());
    };
    uint64_t number = 0;
    for (const double temperature : {0.0, 1.0, 0.3}) {
      for (const double top_p : {1.0, 0.95, 0.2}) {
        for (const int64_t top_k : {0, 3, 40}) {
          for (const double min_p : {0.0, 0.05}) {
            auto row = random.normal(n(vocab), 1.0f + 2.0f * static_cast<float>(number % 3));
            if (number % 5 == 4)
              std::for_each(row.begin(), row.end(), [&](float& x) { x = static_cast<float>(random.below(4)); });
            add({temperature, top_p, min_p, top_k, 1000 + number, 77 * number}, row);
            ++number;
          }
        }
      }
    }
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<float> row(n(vocab), kind < 2 ? 0.5f : -std::numeric_limits<float>::infinity());
      row[n(vocab / 2)] = kind < 2 ? std::numeric_limits<float>::quiet_NaN() : -0.0f;
      row[n(vocab / 3)] = kind == 3 ? 0.0f : row[n(vocab / 3)];
      add({kind % 2 == 0 ? 0.0 : 1.0, 0.9, 0, 0, 3, 9}, row);
    }
    const auto rows = std::ssize(choices);
    DeviceArray<float> dl(logits), workspace(n(ops::choose_token_workspace(rows, vocab)));
    DeviceArray<ops::TokenChoice> dc(choices);
    DeviceArray<int32_t> ids(choices.size());
    OK(ops::choose_token_cuda({dl.get(), dc.get(), ids.get(), rows, vocab}, true, workspace.get(), nullptr));
    const auto got = ids.host();
    Chooser chooser;
    for (int64_t r = 0; r < rows; ++r) {
      const ops::TokenChoice& c = choices[n(r)];
      const auto want = chooser.choose(std::span<const float>(logits).subspan(n(r * vocab), n(vocab)),
                                       {c.temperature, c.top_p, c.min_p, c.top_k, c.seed, c.position});
      ++rows_seen;
      if (got[n(r)] == ops::kUndecided)
        ++undecided;
      else
        CHECK_MESSAGE(got[n(r)] == (want ? *want : ops::kNotFinite), "row " << r << " of " << vocab);
    }
  }
  MESSAGE(undecided << " of " << rows_seen << " rows left to the host");
  CHECK(undecided < rows_seen / 8);
}
