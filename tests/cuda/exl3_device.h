#pragma once
// Test helpers of the EXL3 kernels: random matrices, the same on the device, and the decode kernel's product with them.
#include <memory>
#include <utility>
#include <vector>

#include "device_array.h"
#include "dsf/exl3/decode.h"
#include "dsf/gpu/gpu.h"
#include "dsf/test/support.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"

namespace dsf::test {

inline uint16_t half_bits(float magnitude, bool negative) {  // 0.5 <= magnitude < 2
  const int exponent = magnitude >= 1 ? 15 : 14;
  const float unit = magnitude >= 1 ? 1.0f : 0.5f;
  return static_cast<uint16_t>((negative ? 0x8000 : 0) | (exponent << 10) | static_cast<int>((magnitude / unit - 1) * 1023));
}

inline exl3::Matrix random_matrix(Random& random, int in, int out, int bits, exl3::Codebook codebook = exl3::Codebook::kMul1) {
  exl3::Matrix m{in, out, bits, codebook, {}, {}, {}};
  m.trellis.resize(static_cast<size_t>(in) / 16 * static_cast<size_t>(out) / 16 * 16 * static_cast<size_t>(bits));
  for (auto& w : m.trellis) w = static_cast<uint16_t>(random.below(65536));
  for (int i = 0; i < in; ++i) m.suh.push_back(half_bits(0.5f + static_cast<float>(random.below(1000)) / 1000.0f, random.below(2) != 0));
  for (int i = 0; i < out; ++i) m.svh.push_back(half_bits(0.5f + static_cast<float>(random.below(1000)) / 1000.0f, random.below(2) != 0));
  return m;
}

// A matrix on the device in the lanes layout.
struct DeviceMatrix {
  DeviceArray<uint16_t> trellis, lanes, suh, svh;
  serve::ops::Exl3Matrix view;
  DeviceMatrix(const gpu::Stream& s, const exl3::Matrix& m) : trellis(m.trellis), lanes(m.trellis.size()), suh(m.suh), svh(m.svh) {
    OK(serve::ops::exl3_repack(s, trellis.get(), lanes.get(), static_cast<int>(m.in), static_cast<int>(m.out), m.bits, m.out / 16 * 8 * m.bits));
    OK(s.wait());  // kernels read weights before the work in front of them has ended
    view = {lanes.get(), suh.get(), svh.get(), static_cast<int>(m.in), static_cast<int>(m.out), m.bits};
  }
};

struct Device {
  gpu::Facts facts;
  gpu::Stream stream;
  Device() {
    auto f = gpu::open(0);
    OK(f);
    facts = *f;
    auto s = gpu::Stream::create();
    OK(s);
    stream = std::move(*s);
  }
  std::vector<std::vector<float>> gemv(const std::vector<const DeviceMatrix*>& m, const std::vector<float>& x, int n_rows) {
    size_t blocks = 0;
    std::vector<std::unique_ptr<DeviceArray<float>>> y;
    std::vector<serve::ops::Exl3GemvArgs::Output> outputs;
    for (const auto* w : m) {
      blocks += static_cast<size_t>(w->view.out) / 128;
      y.push_back(std::make_unique<DeviceArray<float>>(static_cast<size_t>(n_rows * w->view.out)));
      outputs.push_back({w->view, y.back()->get(), w->view.out});
    }
    DeviceArray<float> dx(x);
    DeviceArray<uint8_t> workspace(serve::ops::exl3_gemv_workspace_bytes(outputs, n_rows, facts.n_sms));
    DeviceArray<uint32_t> counters(std::vector<uint32_t>(blocks, 0));
    OK(serve::ops::exl3_gemv(stream, facts, {dx.get(), m[0]->view.in, n_rows, outputs, workspace.get(), counters.get()}));
    OK(stream.wait());
    CHECK(counters.host() == std::vector<uint32_t>(blocks, 0));
    std::vector<std::vector<float>> out;
    for (auto& a : y) out.push_back(a->host());
    return out;
  }
};


}  // namespace dsf::test
