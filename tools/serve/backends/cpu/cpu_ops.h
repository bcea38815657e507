#pragma once
// CpuOps: the ops of a layer on the CPU, each spread over a thread pool.
//
// The oracles in backends/ops do the arithmetic; this class only cuts the work into independent rows or outputs, so
// results do not depend on the thread count. Returned vectors are row-major and owned by the caller. One thread calls
// it (the engine loop).
#include <cstdint>
#include <span>
#include <vector>

#include "tools/serve/backends/cpu/thread_pool.h"
#include "tools/serve/backends/ops/common/input_observer.h"
#include "tools/serve/backends/ops/fake_quant/fake_quant.h"
#include "tools/serve/backends/ops/indexer_topk/indexer_topk.h"
#include "tools/serve/backends/ops/moe_experts/moe_experts.h"
#include "tools/serve/backends/ops/sparse_attention/sparse_attention.h"

namespace dsf::serve::cpu {

using Vec = std::vector<float>;

struct Mix {
  Vec pre, post;  // [n, S]
  Vec comb;       // [n, S, S]
};

// Sizes of the hyper-connections; the same in every layer.
struct HyperShape {
  int64_t n_streams = 4, dim = 0, sinkhorn_iters = 20;
  float hc_eps = 1e-6f, norm_eps = 1e-20f;
};

class CpuOps {
 public:
  CpuOps(int threads, HyperShape shape) : pool_(threads), shape_(shape) {}

  ThreadPool& pool() { return pool_; }
  // Told of every product of linear(), linear_into() and experts() from now on; borrowed, nullptr for none.
  void observe(ops::InputObserver* observer) { observer_ = observer; }

  // x: [n, in] -> [n, out]
  Vec linear(std::span<const float> x, const Vec& w, int64_t out, int64_t in);
  // y: rows of stride y_stride, written from y on; x: rows of stride x_stride.
  void linear_into(const float* x, int64_t x_stride, int64_t n, const Vec& w, int64_t out, int64_t in, float* y,
                   int64_t y_stride);
  // In place over rows of w.size() values.
  void rmsnorm(Vec& x, const Vec& w);
  // In place. x: [positions.size(), n_heads, head_dim]; the last 2*freq.size() values of each head are rotated.
  void rope(Vec& x, std::span<const int64_t> positions, int64_t n_heads, const Vec& freq, bool inverse = false);
  void fake_quant(Vec& x, ops::FakeQuant format);

  // x: [n, S, D] streams.
  Mix mix(const Vec& x, const Vec& fn, const Vec& scale, const Vec& base);
  Vec collapse(const Vec& x, const Vec& pre);
  void expand(const Vec& y, const Mix& mix, Vec& x);
  // Mean over the streams. [n, S, D] -> [n, D]
  Vec stream_mean(const Vec& x);

  void attention(const ops::SparseAttentionArgs& args);
  void experts(const ops::MoeExpertsArgs& args);

 private:
  ThreadPool pool_;
  HyperShape shape_;
  ops::InputObserver* observer_ = nullptr;
};

}  // namespace dsf::serve::cpu
