// Times the ops of a step that depend on context, at the model's shapes: scores, selection, candidate blocks,
// attention, packing. A CUDA graph of 20 launches over rotating sessions, median of 21 replays. Prints microseconds a
// launch, bytes it must read or write, and GB/s.
//
//   cuda_step_bench [--read-gbps 4480]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "dsf/gpu/gpu.h"
#include "tools/serve/backends/cuda/launch_cache.h"

namespace {

using namespace dsf;
using namespace dsf::serve;

#define OK(expr)                                                            \
  do {                                                                      \
    auto&& r_ = (expr);                                                     \
    if (!r_) std::printf("%s\n", r_.error().line().c_str()), std::exit(70); \
  } while (false)

constexpr int64_t kSessions = 4, kLongest = int64_t{1} << 20, kHeads = 64, kDim = 512, kIndexHeads = 32,
                  kIndexDim = 128, kTopk = 512, kWindow = 128, kRing = 160, kBlocks = 2048, kBlock = 8, kMaxRows = 512;
constexpr int kLaunches = 20, kReplays = 21;

struct Bench {
  gpu::Stream stream;
  gpu::Event start, stop;
  double read_gbps = 4480;
  std::vector<gpu::DeviceBuffer> owned;

  template <class T>
  T* upload(const std::vector<T>& host) {
    auto buffer = gpu::allocate(host.size() * sizeof(T));
    OK(buffer);
    OK(gpu::copy_to_device(stream, buffer->data(), host.data(), host.size() * sizeof(T)));
    OK(stream.wait());
    owned.push_back(std::move(*buffer));
    return owned.back().as<T>();
  }

  void time(const char* what, int64_t rows, int64_t context, double bytes,
            const std::function<Result<void>(int)>& launch) {
    const auto graph = gpu::Graph::capture(stream, [&]() -> Result<void> {
      for (int i = 0; i < kLaunches; ++i) DSF_OK(launch(i));
      return {};
    });
    OK(graph);
    std::vector<float> us;
    for (int i = 0; i < kReplays + 3; ++i) {
      OK(start.record(stream));
      OK(graph->launch(stream));
      OK(stop.record(stream));
      OK(stop.wait());
      const auto t = stop.us_since(start);
      OK(t);
      if (i >= 3) us.push_back(*t / kLaunches);
    }
    std::nth_element(us.begin(), us.begin() + kReplays / 2, us.end());
    const double median = us[kReplays / 2], gbps = bytes / median * 1e-3;
    std::printf("| %s | %ld | %ld | %.1f | %.2f | %.0f | %.0f %% |\n", what, static_cast<long>(rows),
                static_cast<long>(context), median, bytes * 1e-6, gbps, 100 * gbps / read_gbps);
    std::fflush(stdout);
  }
};

std::vector<float> normal(size_t n) {
  std::mt19937 engine(7);
  std::normal_distribution<float> d;
  std::vector<float> out(n);
  for (float& v : out) v = d(engine);
  return out;
}

// Random codes with scales near one.
std::vector<uint8_t> packed(ops::FakeQuant format, int64_t rows, int64_t dim, uint8_t scale) {
  const int64_t bytes = ops::packed_row_bytes(format, dim), values = format == ops::FakeQuant::kWindow ? dim : dim / 2;
  std::vector<uint8_t> out(static_cast<size_t>(rows * bytes));
  uint64_t x = 88172645463325252u;
  for (int64_t i = 0; i < rows * bytes; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    out[static_cast<size_t>(i)] =
        i % bytes >= values ? static_cast<uint8_t>(scale + x % 3) : static_cast<uint8_t>(x & 0xbf);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  Bench b;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--read-gbps") == 0) b.read_gbps = std::atof(argv[i + 1]);
  }
  OK(gpu::open(0));
  b.stream = std::move(gpu::Stream::create().value());
  b.start = std::move(gpu::Event::create(true).value());
  b.stop = std::move(gpu::Event::create(true).value());

  const auto* keys = b.upload(packed(ops::FakeQuant::kIndex, kSessions * kLongest, kIndexDim, 126));
  const auto* rows_cache = b.upload(packed(ops::FakeQuant::kCompressed, kSessions * kLongest / 4, kDim, 0x37));
  const auto* window = b.upload(packed(ops::FakeQuant::kWindow, kSessions * kRing, kDim, 126));
  auto host_q = normal(static_cast<size_t>(kMaxRows * kIndexHeads * kIndexDim));
  ops::fake_quant_ref({host_q.data(), std::ssize(host_q), ops::FakeQuant::kIndex});
  const float* index_q = b.upload(host_q);
  const float* q = b.upload(normal(static_cast<size_t>(kMaxRows * kHeads * kDim)));
  const float* weight = b.upload(normal(static_cast<size_t>(kMaxRows * kIndexHeads)));
  const float* sink = b.upload(normal(kHeads));
  float* score = b.upload(normal(size_t{32} << 20));
  float* out = b.upload(normal(static_cast<size_t>(kMaxRows * kHeads * kDim)));
  float* partial = b.upload(
      std::vector<float>(static_cast<size_t>(ops::sparse_attention_workspace(64, kHeads, kDim, kWindow, kTopk))));
  float* workspace = b.upload(std::vector<float>(static_cast<size_t>(ops::select_workspace(32, kLongest, kTopk))));
  auto* selection = b.upload(std::vector<int32_t>(kMaxRows * kTopk, -1));
  auto* blocks = b.upload(std::vector<int32_t>(kMaxRows * kBlocks, -1));

  std::printf(
      "| op | rows | context | us | MB | GB/s | of the read rate |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: "
      "|\n");
  for (const int64_t rows : {1, 8}) {
    for (const int64_t context : {int64_t{1024}, int64_t{32768}, int64_t{131072}, kLongest}) {
      const std::vector<int64_t> visible_host(static_cast<size_t>(rows), context);
      const auto* visible = b.upload(visible_host);
      std::vector<int64_t*> offsets;
      for (int64_t s = 0; s < kSessions; ++s) {
        std::vector<int64_t> o(static_cast<size_t>(rows));
        for (int64_t r = 0; r < rows; ++r) o[static_cast<size_t>(r)] = (s + r) % kSessions * kLongest;
        offsets.push_back(b.upload(o));
      }
      const auto n = static_cast<double>(rows * context);
      b.time("index_rows_packed", rows, context, n * 72, [&](int i) {
        return ops::index_rows_packed_cuda({.q = index_q,
                                            .weight = weight,
                                            .keys = nullptr,
                                            .keys_offset = offsets[static_cast<size_t>(i) % kSessions],
                                            .visible = visible,
                                            .score = score,
                                            .n_rows = rows,
                                            .n_heads = kIndexHeads,
                                            .dim = kIndexDim,
                                            .n_keys = kLongest,
                                            .skip = kTopk},
                                           keys, static_cast<ops::CudaStream>(b.stream.handle()));
      });
      b.time("select_rows", rows, context, n * 4, [&](int) {
        return ops::select_rows_cuda({.score = score,
                                      .visible = visible,
                                      .selection = selection,
                                      .n_rows = rows,
                                      .n_keys = kLongest,
                                      .k = kTopk},
                                     workspace, static_cast<ops::CudaStream>(b.stream.handle()));
      });
      b.time("select_blocks", rows, context, n * 4, [&](int) {
        return ops::select_blocks_cuda({.score = score,
                                        .visible = visible,
                                        .blocks = blocks,
                                        .n_rows = rows,
                                        .n_keys = kLongest,
                                        .block_size = kBlock,
                                        .max_blocks = kBlocks},
                                       workspace, static_cast<ops::CudaStream>(b.stream.handle()));
      });
      const double listed = static_cast<double>(rows * std::min<int64_t>(context, kBlocks * kBlock));
      b.time("index_rows_packed of candidate blocks", rows, context, listed * 72, [&](int i) {
        return ops::index_rows_packed_cuda({.q = index_q,
                                            .weight = weight,
                                            .keys = nullptr,
                                            .keys_offset = offsets[static_cast<size_t>(i) % kSessions],
                                            .visible = visible,
                                            .blocks = blocks,
                                            .score = score,
                                            .n_rows = rows,
                                            .n_heads = kIndexHeads,
                                            .dim = kIndexDim,
                                            .n_keys = kBlocks * kBlock,
                                            .block_size = kBlock,
                                            .max_blocks = kBlocks,
                                            .skip = kTopk},
                                           keys, static_cast<ops::CudaStream>(b.stream.handle()));
      });
    }
  }
  for (const int64_t rows : {1, 2, 4, 8, 64}) {
    std::vector<int64_t> begin(static_cast<size_t>(rows), 5000), end(static_cast<size_t>(rows), 5128),
        ring(static_cast<size_t>(rows)), offset(static_cast<size_t>(rows));
    std::vector<int32_t> chosen(static_cast<size_t>(rows * kTopk));
    for (int64_t r = 0; r < rows; ++r) {
      ring[static_cast<size_t>(r)] = r % kSessions * kRing,
      offset[static_cast<size_t>(r)] = r % kSessions * kLongest / 4;
      for (int64_t i = 0; i < kTopk; ++i)
        chosen[static_cast<size_t>(r * kTopk + i)] = static_cast<int32_t>(i * 500 + r);
    }
    const ops::SparseAttentionArgs a{.q = q,
                                     .window_begin = b.upload(begin),
                                     .window_end = b.upload(end),
                                     .selection = b.upload(chosen),
                                     .sink = sink,
                                     .out = out,
                                     .n_rows = rows,
                                     .n_heads = kHeads,
                                     .head_dim = kDim,
                                     .ring_rows = kRing,
                                     .n_selected = kTopk,
                                     .scale = 1 / std::sqrt(512.0f),
                                     .window_offset = b.upload(ring),
                                     .rows_offset = b.upload(offset)};
    b.time("sparse_attention_mma", rows, 5128,
           static_cast<double>(rows) * (kWindow * 528 + kTopk * 288 + 2 * kHeads * kDim * 4), [&](int) {
             return ops::sparse_attention_mma_cuda(a, {window, rows_cache}, kWindow, partial,
                                                   static_cast<ops::CudaStream>(b.stream.handle()));
           });
  }
  auto* window_out = b.upload(packed(ops::FakeQuant::kWindow, kRing, kDim, 126));
  const auto* place = b.upload(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  for (const int64_t rows : {1, 8}) {
    b.time("pack_rows (window)", rows, 0, static_cast<double>(rows * (kDim * 4 + 528)), [&](int) {
      return ops::pack_rows_cuda(
          {.from = q, .place = place, .to = window_out, .n_rows = rows, .dim = kDim, .format = ops::FakeQuant::kWindow},
          static_cast<ops::CudaStream>(b.stream.handle()));
    });
  }
  return 0;
}
