// Times the EXL3 kernels on the shapes of the 2.9 bpw pack: one CUDA graph walks over enough copies of a matrix to leave the L2 behind, the
// median of 21 replays counts. Prints microseconds, GB/s of weights, Tweights/s, shares of the measured read rate and of the pipe bound.
//
//   exl3_bench [--rows 1,2,4,8,16] [--read-gbps 4480] [--only NAME] [--kernel auto|many]
// Above 16 rows (8 in a MoE layer), or with --kernel many, the many-row kernels are timed, whose figure of merit is TFLOP/s (2 * in * out * rows).
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dsf/gpu/cuda.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.h"
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"
#include "tools/serve/backends/ops/exl3_moe/exl3_moe.h"

namespace {

using namespace dsf;
using serve::ops::Exl3GemvArgs;

#define OK(expr)                                                  \
  do {                                                            \
    auto&& r_ = (expr);                                           \
    if (!r_) std::printf("%s\n", r_.error().line().c_str()), std::exit(70); \
  } while (false)

struct Shape {
  const char* name;
  int in, out, bits;
  double owner_us[5];  // the format owner's kernel on an H200 at 1, 2, 4, 8, 16 rows (docs/performance-exl3.md); 0: not measured
};
constexpr Shape kShapes[] = {
    {"expert w1", 5120, 2304, 3, {13.70, 13.47, 18.31, 18.51, 23.21}},   {"expert w2", 2304, 5120, 3, {11.21, 12.34, 13.81, 14.26, 18.84}},
    {"wq_b", 1280, 32768, 5, {21.92, 29.32, 27.45, 28.78, 31.57}},       {"wo_b", 8192, 5120, 5, {26.00, 34.01, 39.76, 40.59, 42.92}},
    {"shared w1", 5120, 2304, 5, {12.42, 14.98, 22.55, 22.87, 24.02}},   {"head", 5120, 129280, 6, {247.6, 290.9, 389.7, 391.4, 397.2}},
    {"expert w1 K2", 5120, 2304, 2, {}},                                 {"expert w1 K4", 5120, 2304, 4, {}},
    {"wq_a", 5120, 1280, 5, {}},                                         {"wo_a group", 4096, 1024, 5, {}},
    {"expert w1 TP2", 5120, 1152, 3, {}},                                {"stream K3", 5120, 65536, 3, {}},                                {"head TP2", 5120, 64640, 6, {}},
};

__global__ void fill_random(uint32_t* p, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 16, x *= 0x85ebca6bu, x ^= x >> 13, x *= 0xc2b2ae35u, x ^= x >> 16;
    p[i] = x;
  }
}
// fp16 between 0.5 and 2 with random sign; floats between -1 and 1.
__global__ void fill_half(uint16_t* p, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    const uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    p[i] = static_cast<uint16_t>((x >> 31 << 15) | 0x3800 | (x >> 10 & 0x7ff));
  }
}
__global__ void fill_float(float* p, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    p[i] = static_cast<float>(static_cast<int>(static_cast<uint32_t>(i) * 2654435761u)) / 2147483648.0f;
}

struct Buffers {
  gpu::DeviceBuffer weights, scales, x, y, workspace, counters;
};

float median_us(const gpu::Stream& s, const gpu::Graph& graph, int launches) {
  auto begin = gpu::Event::create(true), end = gpu::Event::create(true);
  OK(begin);
  OK(end);
  std::vector<float> us;
  for (int i = 0; i < 24; ++i) {
    OK(begin->record(s));
    OK(graph.launch(s));
    OK(end->record(s));
    OK(end->wait());
    if (i >= 3) us.push_back(*end->us_since(*begin) / static_cast<float>(launches));
  }
  std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
  return us[us.size() / 2];
}

struct Layer {
  const char* name;
  int inter, bits, shared_bits;  // 0: no shared expert
  double owner_us;               // one row, six experts, three grouped calls without the activation
};
constexpr Layer kLayers[] = {{"moe", 2304, 3, 0, 134.9}, {"moe+shared", 2304, 3, 5, 0}, {"moe TP2", 1152, 3, 0, 96.0}, {"moe+shared TP2", 1152, 3, 5, 0}};

// One MoE layer with six experts a row, all of them different while the pool lasts; a graph walks over disjoint choices.
void time_layer(const gpu::Stream& s, const gpu::Facts& facts, const Buffers& b, const Layer& layer, int n_rows, double read_gbps, bool many) {
  constexpr int kDim = 5120, kChoices = 6;
  const size_t bytes = size_t(kDim) * size_t(layer.inter) / 8 * size_t(layer.bits);
  const int n_experts = static_cast<int>((b.weights.bytes() - 3 * size_t(kDim) * size_t(layer.inter)) / (3 * bytes));
  std::vector<serve::ops::Exl3Expert> table;
  const auto* scales = b.scales.as<uint16_t>();
  auto expert = [&](std::byte* at, size_t step, int bits) {
    return serve::ops::Exl3Expert{{at, scales, scales, kDim, layer.inter, bits}, {at + step, scales, scales, kDim, layer.inter, bits}, {at + 2 * step, scales, scales, layer.inter, kDim, bits}};
  };
  for (int e = 0; e < n_experts; ++e) table.push_back(expert(b.weights.as<std::byte>(size_t(e) * 3 * bytes), bytes, layer.bits));
  if (layer.shared_bits != 0) table.push_back(expert(b.weights.as<std::byte>(size_t(n_experts) * 3 * bytes), bytes / size_t(layer.bits) * size_t(layer.shared_bits), layer.shared_bits));
  const int launches = many ? 3 : std::max(1, n_experts / (kChoices * n_rows)) * 3;
  std::vector<int32_t> ids;
  for (int i = 0; i < launches * n_rows; ++i)
    for (int j = 0; j < kChoices; ++j) ids.push_back((i * kChoices + j) % n_experts);
  auto take = [](size_t n) {
    auto r = gpu::allocate(n);
    OK(r);
    return std::move(*r);
  };
  gpu::DeviceBuffer dtable = take(table.size() * sizeof table[0]), dids = take(ids.size() * 4);
  OK(gpu::copy_to_device(s, dtable.data(), table.data(), dtable.bytes()));
  OK(gpu::copy_to_device(s, dids.data(), ids.data(), dids.bytes()));
  OK(s.wait());
  DSF_CHECK((many ? serve::ops::exl3_moe_many_workspace_bytes(n_rows, kChoices, n_experts, kDim, layer.inter) : serve::ops::exl3_moe_workspace_bytes(n_rows, kChoices, kDim, layer.inter)) <= b.workspace.bytes(), "workspace");
  auto graph = gpu::Graph::capture(s, [&]() -> Result<void> {
    for (int i = 0; i < launches; ++i) {
      serve::ops::Exl3MoeArgs a;
      a.x = b.x.as<float>(), a.ids = dids.as<int32_t>() + i * n_rows * kChoices, a.weights = b.x.as<float>(), a.y = b.y.as<float>();
      a.experts = dtable.as<serve::ops::Exl3Expert>(), a.shared = layer.shared_bits != 0 ? a.experts + n_experts : nullptr;
      a.n_rows = n_rows, a.k = kChoices, a.dim = kDim, a.inter = layer.inter;
      a.workspace = b.workspace.data(), a.counters = b.counters.as<uint32_t>();
      DSF_OK((many ? serve::ops::exl3_moe_many(s, facts, a, n_experts, std::max(layer.bits, layer.shared_bits)) : serve::ops::exl3_moe(s, facts, a)));
    }
    return {};
  });
  OK(graph);
  const double us = median_us(s, *graph, launches);
  if (many) {
    std::printf("%-14s %3d %5d %9.2f us, %.1f TFLOP/s, %d experts\n", layer.name, layer.bits, n_rows, us, 6e-6 * kDim * layer.inter * (kChoices + (layer.shared_bits != 0 ? 1 : 0)) * n_rows / us, n_experts);
    return;
  }
  const double weights = 3.0 * kDim * layer.inter * (kChoices * n_rows + (layer.shared_bits != 0 ? 1 : 0));
  const double moved = 3.0 * kDim * layer.inter / 8 * (kChoices * n_rows * layer.bits + layer.shared_bits);
  const double owner = n_rows == 1 ? layer.owner_us : 0;
  std::printf("%-14s %3d %5d %9.2f %8.0f %9.2f %6.0f%% %9.1f %6.2fx\n", layer.name, layer.bits, n_rows, us, moved / us / 1e3, weights / us / 1e6,
              100 * moved / us / 1e3 / read_gbps, owner, owner / us);
}

}  // namespace

int main(int argc, char** argv) {
  double read_gbps = 4480;
  std::vector<int> rows{1, 2, 4, 8, 16};
  std::string only;
  bool force_many = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--read-gbps") read_gbps = std::atof(argv[i + 1]);
    if (flag == "--only") only = argv[i + 1];
    if (flag == "--kernel") force_many = std::string(argv[i + 1]) == "many";
    if (flag == "--rows") {
      rows.clear();
      for (char* p = argv[i + 1]; *p != 0;) rows.push_back(static_cast<int>(std::strtol(p, &p, 10))), p += *p == ',';
    }
  }
  auto facts = gpu::open(0);
  if (!facts) return std::fprintf(stderr, "SKIP exl3_bench: %s\n", facts.error().line().c_str()), 77;
  auto stream = gpu::Stream::create();
  OK(stream);
  const size_t pool_bytes = size_t{1} << 30;
  Buffers b;
  auto take = [](size_t bytes) {
    auto r = gpu::allocate(bytes);
    OK(r);
    return std::move(*r);
  };
  b.weights = take(pool_bytes), b.scales = take(size_t{1} << 20), b.x = take(size_t{2048} * 16384 * 4), b.y = take(size_t{2048} * 65536 * 4);
  b.workspace = take(size_t{3} << 29), b.counters = take(size_t{1} << 20);
  cudaStream_t cs = gpu::cuda_stream(*stream);
  fill_random<<<1024, 256, 0, cs>>>(b.weights.as<uint32_t>(), pool_bytes / 4, 1);
  fill_half<<<256, 256, 0, cs>>>(b.scales.as<uint16_t>(), b.scales.bytes() / 2);
  fill_float<<<256, 256, 0, cs>>>(b.x.as<float>(), b.x.bytes() / 4);
  OK(gpu::fill(*stream, b.counters.data(), 0, b.counters.bytes()));
  std::printf("%s, %d SMs, driver %d, runtime %d; read rate taken as %.0f GB/s\n", facts->name.c_str(), facts->n_sms, facts->driver, facts->runtime, read_gbps);
  std::printf("%-14s %3s %5s %9s %8s %9s %7s %9s %7s\n", "matrix", "K", "rows", "us", "GB/s", "Tweight/s", "of read", "owner us", "faster");
  for (const Shape& shape : kShapes) {
    if (!only.empty() && only != shape.name) continue;
    const size_t bytes = size_t(shape.in) * size_t(shape.out) / 8 * size_t(shape.bits);
    const int copies = static_cast<int>(std::clamp<size_t>(pool_bytes / bytes, 1, 100));
    for (const int n_rows : rows) {
      const bool many = force_many || n_rows > serve::ops::kExl3GemvRows;
      if (size_t(n_rows) * size_t(shape.out) * 4 > b.y.bytes()) continue;
      auto graph = gpu::Graph::capture(*stream, [&]() -> Result<void> {
        for (int i = 0; i < copies; ++i) {
          serve::ops::Exl3Matrix m{b.weights.as<std::byte>(size_t(i) * bytes), b.scales.as<uint16_t>(), b.scales.as<uint16_t>(), shape.in, shape.out, shape.bits};
          const Exl3GemvArgs::Output o{m, b.y.as<float>(), shape.out};
          const serve::ops::Exl3GemvArgs a{b.x.as<float>(), shape.in, n_rows, std::span(&o, 1), b.workspace.data(), b.counters.as<uint32_t>()};
          DSF_CHECK((many ? serve::ops::exl3_gemm_workspace_bytes(a.outputs, n_rows) : serve::ops::exl3_gemv_workspace_bytes(a.outputs, n_rows, facts->n_sms)) <= b.workspace.bytes(), "workspace");
          DSF_OK((many ? serve::ops::exl3_gemm(*stream, *facts, a) : serve::ops::exl3_gemv(*stream, *facts, a)));
        }
        return {};
      });
      OK(graph);
      const double us = median_us(*stream, *graph, copies);
      if (many) {
        std::printf("%-14s %3d %5d %9.2f us, %.1f TFLOP/s\n", shape.name, shape.bits, n_rows, us, 2e-6 * double(shape.in) * shape.out * n_rows / us);
        continue;
      }
      const double gbps = static_cast<double>(bytes) / us / 1e3, tweights = double(shape.in) * shape.out / us / 1e6;
      const int index = n_rows == 1 ? 0 : n_rows == 2 ? 1 : n_rows == 4 ? 2 : n_rows == 8 ? 3 : n_rows == 16 ? 4 : -1;
      const double owner = index < 0 ? 0 : shape.owner_us[index];
      std::printf("%-14s %3d %5d %9.2f %8.0f %9.2f %6.0f%% %9.1f %6.2fx\n", shape.name, shape.bits, n_rows, us, gbps, tweights, 100 * gbps / read_gbps, owner, owner / us);
    }
  }
  for (const Layer& layer : kLayers)
    for (const int n_rows : rows)
      if (only.empty() || only == layer.name) time_layer(*stream, *facts, b, layer, n_rows, read_gbps, force_many || n_rows > serve::ops::kExl3MoeRows);
  OK(stream->wait());
  return 0;
}
