// The EXL3 kernels against the format's oracle: every width, edge shapes, 1 to 16 rows, bit equality between batches.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "dsf/exl3/decode.h"
#include "dsf/safetensors/safetensors.h"
#include "exl3_device.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_reconstruct.h"
#include "tools/serve/backends/ops/exl3_gemv/tuning.h"
#include "tools/serve/backends/ops/exl3_moe/exl3_moe.h"

using namespace dsf;
using test::Device, test::DeviceArray, test::DeviceMatrix, test::random_matrix;

namespace {

// Activations keep 15 bits and a sign per 128 inputs: the step is max / 32258, at most about 3.5 sigma / 32258, its rms 1/sqrt(12) of that.
constexpr double kActivation = 6e-5;
// The kernels use the affine value of the byte sum, the format rounds it to fp16: half a unit of 11 bits, uniformly distributed.
constexpr double kWeightRounding = 2.5e-4;

// y = H(H(x * suh) A) * svh in double, A the unrounded affine value of every state: what the kernel computes but for its activations.
std::vector<float> affine_product(const exl3::Matrix& m, const std::vector<float>& x, int n_rows) {
  const auto in = static_cast<size_t>(m.in), out = static_cast<size_t>(m.out);
  std::vector<float> values(in * out);
  const auto view = m.view();
  for (int64_t kt = 0; kt < m.in / 16; ++kt)
    for (int64_t nt = 0; nt < m.out / 16; ++nt) {
      const auto states = exl3::unpack_states(view.tile(kt, nt), 2 * m.bits);
      for (int t = 0; t < 256; ++t) {
        const uint32_t p = states[static_cast<size_t>(t)] * exl3::kMul1Multiplier;
        const int sum = static_cast<int>((p & 255) + (p >> 8 & 255) + (p >> 16 & 255) + (p >> 24));
        const auto at = exl3::tile_position(t);
        values[static_cast<size_t>(kt * 16 + at.row) * out + static_cast<size_t>(nt * 16 + at.col)] = static_cast<float>(1774 * sum - 905216) / 262144.0f;
      }
    }
  auto scale = [](const std::vector<uint16_t>& h, size_t i) {
    const uint16_t b = h[i];
    return std::ldexp(1.0 + (b & 1023) / 1024.0, ((b >> 10) & 31) - 15) * ((b & 0x8000) != 0 ? -1 : 1);
  };
  std::vector<float> y(static_cast<size_t>(n_rows) * out);
  std::vector<double> a(in), z(out);
  for (size_t row = 0; row < static_cast<size_t>(n_rows); ++row) {
    for (size_t i = 0; i < in; ++i) a[i] = x[row * in + i] * scale(m.suh, i) / std::sqrt(128.0);
    for (size_t i = 0; i < in; i += 128) exl3::hadamard128(std::span<double, 128>(a.data() + i, 128));
    std::fill(z.begin(), z.end(), 0.0);
    for (size_t i = 0; i < in; ++i)
      for (size_t j = 0; j < out; ++j) z[j] += a[i] * static_cast<double>(values[i * out + j]);
    for (size_t j = 0; j < out; j += 128) exl3::hadamard128(std::span<double, 128>(z.data() + j, 128));
    for (size_t j = 0; j < out; ++j) y[row * out + j] = static_cast<float>(z[j] * scale(m.svh, j) / std::sqrt(128.0));
  }
  return y;
}

}  // namespace

TEST_CASE("the decode kernel meets the affine oracle at every width, on edge shapes, for 1 to 16 rows") {
  NEED_DEVICE("exl3_gemv");
  Device device;
  test::Random random(11);
  for (int bits = 1; bits <= 8; ++bits)
    for (const auto& [in, out] : {std::pair<int, int>{128, 128}, {256, 384}, {1152, 128}, {896, 640}, {1664, 1280}, {5120, 256}}) {
      const auto m = random_matrix(random, in, out, bits);
      const DeviceMatrix w(device.stream, m);
      for (const int n_rows : {1, 4, 5, 8, 16}) {
        const auto x = random.normal(static_cast<size_t>(n_rows * in));
        const auto want = affine_product(m, x, n_rows);
        const double distance = test::relative_distance(device.gemv({&w}, x, n_rows)[0], want);
        CHECK_MESSAGE(distance < kActivation, in << "x" << out << " K" << bits << " rows " << n_rows << ": " << distance);
      }
    }
}

TEST_CASE("the decode kernel stays within the format's fp16 rounding of the reference") {
  NEED_DEVICE("exl3_gemv against exl3::matmul");
  Device device;
  test::Random random(12);
  for (int bits = 1; bits <= 8; ++bits) {
    const auto m = random_matrix(random, 512, 256, bits);
    const DeviceMatrix w(device.stream, m);
    const auto x = random.normal(3 * 512);
    const std::vector<double> xd(x.begin(), x.end());
    std::vector<double> yd(3 * 256);
    exl3::matmul(m.view(), xd, yd);
    const double distance = test::relative_distance(device.gemv({&w}, x, 3)[0], std::vector<float>(yd.begin(), yd.end()));
    CHECK_MESSAGE(distance < kActivation + kWeightRounding, "K" << bits << ": " << distance);
  }
}

TEST_CASE("a row has the same bits alone, in any batch and twice") {
  NEED_DEVICE("exl3_gemv bits");
  Device device;
  test::Random random(13);
  const DeviceMatrix a(device.stream, random_matrix(random, 1280, 512, 3)), b(device.stream, random_matrix(random, 1280, 256, 5));
  auto x = random.normal(16 * 1280);
  for (int i = 0; i < 1280; ++i) x[static_cast<size_t>(1280 + i)] *= 1e4f;  // a loud neighbour
  const auto all = device.gemv({&a, &b}, x, 16);
  CHECK(device.gemv({&a, &b}, x, 16) == all);
  for (const int n_rows : {1, 2, 3, 5, 8, 13}) {
    for (const int first : {0, 1, 3}) {
      const std::vector<float> part(x.begin() + first * 1280, x.begin() + (first + n_rows) * 1280);
      const auto y = device.gemv({&a, &b}, part, n_rows);
      CHECK(std::memcmp(y[0].data(), all[0].data() + first * 512, y[0].size() * sizeof(float)) == 0);
      CHECK(std::memcmp(y[1].data(), all[1].data() + first * 256, y[1].size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("rows of zeros give zeros and rows with a large outlier stay finite and close") {
  NEED_DEVICE("exl3_gemv extremes");
  Device device;
  test::Random random(14);
  const auto m = random_matrix(random, 384, 128, 4);
  const DeviceMatrix w(device.stream, m);
  CHECK(device.gemv({&w}, std::vector<float>(384), 1)[0] == std::vector<float>(128));
  auto x = random.normal(384);
  x[200] = 30000;
  CHECK(test::relative_distance(device.gemv({&w}, x, 1)[0], affine_product(m, x, 1)) < kActivation);
}

namespace {

struct HostExpert {
  exl3::Matrix w1, w3, w2;
};

// The chosen experts of every row in ascending order, the shared one (last of `experts`) at the end; affine weights, f32 between the matrices.
std::vector<float> moe_product(const std::vector<HostExpert>& experts, const std::vector<float>& x, const std::vector<int32_t>& ids,
                               const std::vector<float>& weights, int n_rows, int k, int dim, int inter) {
  std::vector<float> y(static_cast<size_t>(n_rows * dim), 0.0f);
  for (int row = 0; row < n_rows; ++row) {
    const std::vector<float> xr(x.begin() + row * dim, x.begin() + (row + 1) * dim);
    for (int j = 0; j <= k; ++j) {
      const auto at = static_cast<size_t>(row * k + j);
      const HostExpert& e = j < k ? experts[static_cast<size_t>(ids[at])] : experts.back();
      const float weight = j < k ? weights[at] : 1.0f;
      auto g = affine_product(e.w1, xr, 1);
      const auto u = affine_product(e.w3, xr, 1);
      for (size_t i = 0; i < static_cast<size_t>(inter); ++i) {
        const float gi = std::min(g[i], 10.0f), ui = std::clamp(u[i], -10.0f, 10.0f);
        g[i] = gi / (1 + std::exp(-gi)) * ui * weight;
      }
      const auto d = affine_product(e.w2, g, 1);
      for (size_t i = 0; i < static_cast<size_t>(dim); ++i) y[static_cast<size_t>(row * dim) + i] += d[i];
    }
  }
  return y;
}

}  // namespace

TEST_CASE("the experts of 1 to 8 rows meet the affine oracle, and a row's bits do not depend on the others") {
  NEED_DEVICE("exl3_moe");
  Device device;
  test::Random random(21);
  const int dim = 640, inter = 384, k = 3, n_experts = 7;
  std::vector<HostExpert> host;
  std::vector<std::unique_ptr<DeviceMatrix>> matrices;
  std::vector<serve::ops::Exl3Expert> table;
  for (int e = 0; e <= n_experts; ++e) {
    const int bits = e == n_experts ? 5 : 2 + e % 3;
    host.push_back({random_matrix(random, dim, inter, bits), random_matrix(random, dim, inter, bits), random_matrix(random, inter, dim, bits + 1)});
    serve::ops::Exl3Expert x;
    for (auto [from, to] : {std::pair{&host.back().w1, &x.w1}, {&host.back().w3, &x.w3}, {&host.back().w2, &x.w2}}) {
      matrices.push_back(std::make_unique<DeviceMatrix>(device.stream, *from));
      *to = matrices.back()->view;
    }
    table.push_back(x);
  }
  DeviceArray<serve::ops::Exl3Expert> dtable(table);
  const auto x = random.normal(8 * dim, 0.02f);
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int row = 0; row < 8; ++row) {
    const auto first = static_cast<int32_t>(row < 6 ? 0 : random.below(3));  // six rows share expert 0: more than the four of one pass
    ids.insert(ids.end(), {first, static_cast<int32_t>(5 + row % 2), static_cast<int32_t>(3 + row % 2)});
    weights.insert(weights.end(), {0.7f, 0.5f, 0.3f});
  }
  auto run = [&](int first, int n_rows) {
    DeviceArray<float> dx(std::vector<float>(x.begin() + first * dim, x.begin() + (first + n_rows) * dim));
    DeviceArray<int32_t> did(std::vector<int32_t>(ids.begin() + first * k, ids.begin() + (first + n_rows) * k));
    DeviceArray<float> dw(std::vector<float>(weights.begin() + first * k, weights.begin() + (first + n_rows) * k)), y(static_cast<size_t>(n_rows * dim));
    DeviceArray<uint8_t> workspace(serve::ops::exl3_moe_workspace_bytes(n_rows, k, dim, inter));
    DeviceArray<uint32_t> counters(std::vector<uint32_t>(serve::ops::exl3_moe_counters(n_rows, k, dim, inter), 0));
    serve::ops::Exl3MoeArgs a{dx.get(), did.get(), dw.get(), dtable.get(), dtable.get() + n_experts, y.get(), n_rows, k, dim, inter, 10, workspace.get(), counters.get()};
    OK(serve::ops::exl3_moe(device.stream, device.facts, a));
    OK(serve::ops::exl3_moe(device.stream, device.facts, a));  // the second call finds the counters as the first one did
    OK(device.stream.wait());
    CHECK(counters.host() == std::vector<uint32_t>(serve::ops::exl3_moe_counters(n_rows, k, dim, inter), 0));
    return y.host();
  };
  const auto want = moe_product(host, x, ids, weights, 8, k, dim, inter);
  const auto all = run(0, 8);
  const double distance = test::relative_distance(all, want);
  CHECK_MESSAGE(distance < 3 * kActivation, "distance " << distance);  // two products in a row, and the nonlinearity between them
  for (const auto& [first, n] : {std::pair<int, int>{0, 1}, {7, 1}, {2, 3}, {3, 5}}) {
    const auto part = run(first, n);
    CHECK(std::memcmp(part.data(), all.data() + first * dim, part.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("reconstructed weights are the oracle's for every width and codebook") {
  NEED_DEVICE("exl3_reconstruct");
  Device device;
  test::Random random(31);
  using serve::ops::Exl3Codebook;
  for (const auto& [host, name] : {std::pair{exl3::Codebook::kMul1, Exl3Codebook::kMul1}, {exl3::Codebook::kMcg, Exl3Codebook::kMcg}, {exl3::Codebook::k3Inst, Exl3Codebook::k3Inst}})
    for (int bits = 1; bits <= 8; ++bits) {
      const auto m = random_matrix(random, 384, 256, bits, host);
      const DeviceMatrix w(device.stream, m);
      std::vector<float> want(384 * 256);
      exl3::dequantise(m.view(), want);
      DeviceArray<float> got(want.size());
      OK(serve::ops::exl3_reconstruct(device.stream, w.view, name, got.get()));
      OK(device.stream.wait());
      const double distance = test::relative_distance(got.host(), want);
      CHECK_MESSAGE(distance < 5e-7, exl3::codebook_name(host) << " K" << bits << ": " << distance);  // two f32 sums of 128
    }
}

TEST_CASE("the format owner's vectors: products of every width within the fp16 steps of the reference") {
  NEED_DEVICE("exl3_vectors");
  const auto path = test::shared_data() / "exl3_vectors.safetensors";
  if (test::shared_data().empty() || !std::filesystem::exists(path)) return test::skip("exl3_vectors", "shared data not present");
  Device device;
  auto file = safetensors::File::open(path);
  OK(file);
  int n = 0;
  for (const auto& t : file->header().tensors) {
    const size_t cut = t.name.rfind(".trellis");
    if (cut == std::string::npos || t.name.find("mul1") == std::string::npos) continue;
    const std::string name = t.name.substr(0, cut + 1);
    auto words = [&](const char* part) {
      const auto v = *file->tensor(name + part);
      std::vector<uint16_t> out(v.bytes.size() / 2);
      std::memcpy(out.data(), v.bytes.data(), out.size() * 2);
      return out;
    };
    exl3::Matrix m{256, 128, static_cast<int>(t.shape.at(2) / 16), exl3::Codebook::kMul1, words("trellis"), words("suh"), words("svh")};
    const auto xv = *file->tensor(name + "x"), yv = *file->tensor(name + "y_f64");
    std::vector<float> x(4 * 256), want(4 * 128);
    for (size_t i = 0; i < x.size(); ++i) {
      if (xv.dtype() == tensor::DType::kF16) {
        uint16_t h;
        std::memcpy(&h, xv.bytes.data() + 2 * i, 2);
        const float magnitude = (h >> 10 & 31) == 0 ? std::ldexp(static_cast<float>(h & 1023), -24) : std::ldexp(1.0f + static_cast<float>(h & 1023) / 1024, (h >> 10 & 31) - 15);
        x[i] = (h & 0x8000) != 0 ? -magnitude : magnitude;
      } else {
        std::memcpy(&x[i], xv.bytes.data() + 4 * i, 4);
      }
    }
    for (size_t i = 0; i < want.size(); ++i) {
      double d;
      std::memcpy(&d, yv.bytes.data() + 8 * i, 8);
      want[i] = static_cast<float>(d);
    }
    const DeviceMatrix w(device.stream, m);
    const double distance = test::relative_distance(device.gemv({&w}, x, 4)[0], want);
    CHECK_MESSAGE(distance < 6e-4, name << ": " << distance);  // y_f64 has x and its transform in fp16, we have neither
    ++n;
  }
  CHECK(n == 8);
}

TEST_CASE("cuts cover every column, keep the image small and do not know the number of rows") {
  using namespace serve::ops::exl3;
  for (const int n_sms : {48, 132})
    for (const auto& [in, out] : {std::pair<int, int>{128, 128}, {512, 128}, {1280, 32768}, {2304, 5120}, {5120, 512}, {5120, 129280}, {8192, 5120}, {15360, 5120}}) {
      const Plan p = plan(in, out, n_sms);
      CHECK(p.columns >= 1);
      CHECK(p.groups * p.columns >= out / 128);
      CHECK((p.groups - 1) * p.columns < out / 128);
      CHECK(p.chunks <= in / 128);
      CHECK((in / 128 + p.chunks - 1) / p.chunks <= kMaxChunkBlocks);
    }
}
