// The many-row EXL3 kernels give a row the bits of the decode kernels, whatever its neighbours and their number.
#include <cstring>

#include "exl3_device.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.h"
#include "tools/serve/backends/ops/exl3_gemm/tile_size.h"

using namespace dsf;
using test::Device, test::DeviceArray, test::DeviceMatrix, test::random_matrix;

namespace {

using Rows = std::vector<float>;

// The device, or itself as an older one: the kernels that need nothing of it.
const int kNewest = 0, kPlain = 80;
gpu::Facts facts_as(const Device& device, int arch) {
  gpu::Facts facts = device.facts;
  if (arch != kNewest) facts.arch = arch;
  return facts;
}

// One launch over matrices side by side: each reads its own part of x's rows.
std::vector<Rows> gemm(const Device& device, const std::vector<const DeviceMatrix*>& m, const Rows& x, int n_rows, bool side_by_side, int arch) {
  const int in = m[0]->view.in;
  std::vector<std::unique_ptr<DeviceArray<float>>> y;
  std::vector<serve::ops::Exl3GemvArgs::Output> outputs;
  for (const auto* w : m) {
    y.push_back(std::make_unique<DeviceArray<float>>(static_cast<size_t>(n_rows * w->view.out)));
    outputs.push_back({w->view, y.back()->get(), w->view.out, side_by_side ? static_cast<int>(outputs.size()) * in : 0});
  }
  DeviceArray<float> dx(x);
  DeviceArray<uint8_t> workspace(serve::ops::exl3_gemm_workspace_bytes(outputs, n_rows));
  OK(serve::ops::exl3_gemm(device.stream, facts_as(device, arch),
                           {dx.get(), side_by_side ? in * static_cast<int>(m.size()) : in, n_rows, outputs, workspace.get(), nullptr}));
  OK(device.stream.wait());
  std::vector<Rows> out;
  for (auto& a : y) out.push_back(a->host());
  return out;
}

size_t different(const Rows& a, const Rows& b) {
  size_t n = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += std::memcmp(&a[i], &b[i], sizeof(float)) != 0 ? 1 : 0;
  return n;
}

Rows part_of(const Rows& all, int first, int n_rows, int width) { return {all.begin() + first * width, all.begin() + (first + n_rows) * width}; }

}  // namespace

TEST_CASE("many rows: the decode kernel's bits at every width, on edge shapes, for 1 to 100 rows") {
  NEED_DEVICE("exl3_gemm");
  Device device;
  test::Random random(51);
  for (int bits = 1; bits <= 8; ++bits)
    for (const auto& [in, out] : {std::pair<int, int>{128, 128}, {1152, 256}, {5120, 128}}) {
      const DeviceMatrix w(device.stream, random_matrix(random, in, out, bits));
      auto x = random.normal(static_cast<size_t>(100 * in));
      for (int i = 0; i < in; ++i) x[static_cast<size_t>(3 * in + i)] *= 1e4f, x[static_cast<size_t>(50 * in + i)] = 0;
      Rows want;
      for (int row = 0; row < 100; row += 10) {
        const Rows y = device.gemv({&w}, part_of(x, row, 10, in), 10)[0];
        want.insert(want.end(), y.begin(), y.end());
      }
      for (const int arch : {kNewest, kPlain})
        for (const auto& [first, n] : {std::pair<int, int>{0, 100}, {0, 1}, {2, 17}, {5, 40}, {1, 63}}) {
          const auto got = gemm(device, {&w}, part_of(x, first, n, in), n, false, arch)[0];
          CHECK_MESSAGE(different(got, part_of(want, first, n, out)) == 0, in << "x" << out << " K" << bits << " rows " << first << " + " << n << " arch " << arch);
        }
    }
}

TEST_CASE("many rows: more tiles than the device has room for at once") {
  NEED_DEVICE("exl3_gemm tiles");
  Device device;
  test::Random random(54);
  const int in = 640, out = 8192, n_rows = 230;
  const DeviceMatrix w(device.stream, random_matrix(random, in, out, 3));
  const auto x = random.normal(static_cast<size_t>(n_rows * in));
  for (const int arch : {kNewest, kPlain}) {
    const auto got = gemm(device, {&w}, x, n_rows, false, arch)[0];
    for (int row = 0; row < n_rows; row += 10)
      CHECK_MESSAGE(different(part_of(got, row, 10, out), device.gemv({&w}, part_of(x, row, 10, in), 10)[0]) == 0, "rows from " << row << " arch " << arch);
    CHECK(different(got, gemm(device, {&w}, x, n_rows, false, arch)[0]) == 0);
  }
}

TEST_CASE("many rows: matrices of several widths in one launch, with one input or side by side") {
  NEED_DEVICE("exl3_gemm groups");
  Device device;
  test::Random random(52);
  const DeviceMatrix a(device.stream, random_matrix(random, 640, 512, 5)), b(device.stream, random_matrix(random, 640, 128, 8)), c(device.stream, random_matrix(random, 640, 256, 3));
  const int n_rows = 33;
  const auto x = random.normal(n_rows * 640 * 3);
  const std::vector<const DeviceMatrix*> all = {&a, &b, &c};
  for (const int arch : {kNewest, kPlain}) {
    const auto one = gemm(device, all, part_of(x, 0, n_rows, 640), n_rows, false, arch), own = gemm(device, all, x, n_rows, true, arch);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(different(one[i], gemm(device, {all[i]}, part_of(x, 0, n_rows, 640), n_rows, false, arch)[0]) == 0);
      Rows mine;
      for (int row = 0; row < n_rows; ++row) {
        const Rows part = part_of(x, 3 * row + static_cast<int>(i), 1, 640);
        mine.insert(mine.end(), part.begin(), part.end());
      }
      CHECK(different(own[i], gemm(device, {all[i]}, mine, n_rows, false, arch)[0]) == 0);
    }
  }
}

TEST_CASE("many rows: grouped experts give exl3_moe's bits") {
  NEED_DEVICE("exl3_moe_many");
  Device device;
  test::Random random(53);
  const int dim = 640, inter = 384, k = 3, n_experts = 9;
  std::vector<std::unique_ptr<DeviceMatrix>> matrices;
  std::vector<serve::ops::Exl3Expert> table;
  for (int e = 0; e <= n_experts; ++e) {
    const int bits = e == n_experts ? 5 : 2 + e % 3;
    serve::ops::Exl3Expert x;
    for (const auto& [to, in, out] : {std::tuple{&x.w1, dim, inter}, {&x.w3, dim, inter}, {&x.w2, inter, dim}}) {
      matrices.push_back(std::make_unique<DeviceMatrix>(device.stream, random_matrix(random, in, out, bits + (to == &x.w2 ? 1 : 0))));
      *to = matrices.back()->view;
    }
    table.push_back(x);
  }
  DeviceArray<serve::ops::Exl3Expert> dtable(table);
  const int all_rows = 130;
  const auto x = random.normal(static_cast<size_t>(all_rows * dim), 0.02f);
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int row = 0; row < all_rows; ++row) {  // expert 0 is everybody's, expert 1 nobody's
    const auto second = static_cast<int32_t>(2 + random.below(3)), third = static_cast<int32_t>(5 + random.below(4));
    if (row % 5 == 0) ids.insert(ids.end(), {third, 0, second});
    else ids.insert(ids.end(), {0, second, third});
    for (int j = 0; j < k; ++j) weights.push_back(0.1f + static_cast<float>(random.below(100)) / 100.0f);
  }
  for (const bool shared : {true, false}) {
    const auto run = [&](int first, int n_rows, bool many, int arch = kNewest) {
      DeviceArray<float> dx(part_of(x, first, n_rows, dim)), dw(part_of(weights, first, n_rows, k)), y(static_cast<size_t>(n_rows * dim));
      DeviceArray<int32_t> did(std::vector<int32_t>(ids.begin() + first * k, ids.begin() + (first + n_rows) * k));
      DeviceArray<uint8_t> workspace(many ? serve::ops::exl3_moe_many_workspace_bytes(n_rows, k, n_experts, dim, inter) : serve::ops::exl3_moe_workspace_bytes(n_rows, k, dim, inter));
      DeviceArray<uint32_t> counters(std::vector<uint32_t>(many ? 1 : serve::ops::exl3_moe_counters(n_rows, k, dim, inter), 0));
      const serve::ops::Exl3MoeArgs a{dx.get(), did.get(), dw.get(), dtable.get(), shared ? dtable.get() + n_experts : nullptr, y.get(), n_rows, k, dim, inter, 10, workspace.get(), counters.get()};
      if (many) OK(serve::ops::exl3_moe_many(device.stream, facts_as(device, arch), a, n_experts, 6));
      else OK(serve::ops::exl3_moe(device.stream, device.facts, a));
      OK(device.stream.wait());
      return y.host();
    };
    Rows want;
    for (int row = 0; row < all_rows; row += 5) {
      const Rows y = run(row, 5, false);
      want.insert(want.end(), y.begin(), y.end());
    }
    for (const int arch : {kNewest, kPlain})
      for (const auto& [first, n] : {std::pair<int, int>{0, all_rows}, {0, 1}, {3, 9}, {1, 30}, {60, 70}})
        CHECK_MESSAGE(different(run(first, n, true, arch), part_of(want, first, n, dim)) == 0,
                      "rows " << first << " + " << n << (shared ? " with" : " without") << " a shared expert, arch " << arch);
  }
}

TEST_CASE("tile sizes: few rows take small tiles, memory limits are kept") {
  using namespace serve::ops::exl3;
  const size_t needs[] = {40000, 70000, 100000};
  CHECK(tile_choice(1, 1, 132, 232448, needs) == 0);
  CHECK(kTileGroups[tile_choice(128, 400, 132, 232448, needs)] > 4);
  CHECK(tile_choice(512, 400, 48, 50000, needs) == 0);
}
