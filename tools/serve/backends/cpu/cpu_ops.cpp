#include "tools/serve/backends/cpu/cpu_ops.h"

#include <algorithm>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/hyper_mix/hyper_mix.h"
#include "tools/serve/backends/ops/linear/linear.h"
#include "tools/serve/backends/ops/rmsnorm/rmsnorm.h"
#include "tools/serve/backends/ops/rope/rope.h"

namespace dsf::serve::cpu {
namespace {

// Multiply-adds worth waking a thread for.
constexpr int64_t kMinWork = 1 << 16;

int64_t min_piece(int64_t work_per_item) {
  return std::max<int64_t>(1, kMinWork / std::max<int64_t>(1, work_per_item));
}

}  // namespace

Vec CpuOps::linear(std::span<const float> x, const Vec& w, int64_t out, int64_t in) {
  const int64_t n = std::ssize(x) / in;
  Vec y(static_cast<size_t>(n * out));
  linear_into(x.data(), in, n, w, out, in, y.data(), out);
  return y;
}

void CpuOps::linear_into(const float* x, int64_t x_stride, int64_t n, const Vec& w, int64_t out, int64_t in, float* y,
                         int64_t y_stride) {
  DSF_CHECK(std::ssize(w) == out * in, "weight size");
  if (observer_ != nullptr) observer_->inputs(w.data(), x, x_stride, n, in);
  pool_.for_range(out, min_piece(n * in), [&](int64_t begin, int64_t end) {
    ops::linear_ref({.x = x,
                     .w = w.data() + begin * in,
                     .y = y + begin,
                     .n_rows = n,
                     .in = in,
                     .out = end - begin,
                     .x_stride = x_stride,
                     .y_stride = y_stride});
  });
}

void CpuOps::rmsnorm(Vec& x, const Vec& w) {
  const int64_t dim = std::ssize(w);
  ops::rmsnorm_ref(
      {.x = x.data(), .w = w.data(), .y = x.data(), .n_rows = std::ssize(x) / dim, .dim = dim, .eps = shape_.norm_eps});
}

void CpuOps::rope(Vec& x, std::span<const int64_t> positions, int64_t n_heads, const Vec& freq, bool inverse) {
  const int64_t n = std::ssize(positions);
  if (n == 0) return;
  const int64_t row = std::ssize(x) / n;
  pool_.for_range(n, min_piece(row), [&](int64_t begin, int64_t end) {
    ops::rope_ref({.x = x.data() + begin * row,
                   .positions = positions.data() + begin,
                   .freq = freq.data(),
                   .n_rows = end - begin,
                   .n_heads = n_heads,
                   .head_dim = row / n_heads,
                   .rope_dim = 2 * std::ssize(freq),
                   .inverse = inverse});
  });
}

void CpuOps::fake_quant(Vec& x, ops::FakeQuant format) {
  constexpr int64_t kBlock = 32;  // a multiple of every format's block
  pool_.for_range(std::ssize(x) / kBlock, min_piece(kBlock * 8), [&](int64_t begin, int64_t end) {
    ops::fake_quant_ref({.x = x.data() + begin * kBlock, .n = (end - begin) * kBlock, .format = format});
  });
}

Mix CpuOps::mix(const Vec& x, const Vec& fn, const Vec& scale, const Vec& base) {
  const int64_t s = shape_.n_streams, row = s * shape_.dim, n = std::ssize(x) / row;
  Mix m{.pre = Vec(static_cast<size_t>(n * s)),
        .post = Vec(static_cast<size_t>(n * s)),
        .comb = Vec(static_cast<size_t>(n * s * s))};
  pool_.for_range(n, min_piece(row * (2 + s) * s), [&](int64_t begin, int64_t end) {
    ops::hyper_mix_ref({.x = x.data() + begin * row,
                        .fn = fn.data(),
                        .scale = scale.data(),
                        .base = base.data(),
                        .pre = m.pre.data() + begin * s,
                        .post = m.post.data() + begin * s,
                        .comb = m.comb.data() + begin * s * s,
                        .n_rows = end - begin,
                        .n_streams = s,
                        .dim = shape_.dim,
                        .sinkhorn_iters = shape_.sinkhorn_iters,
                        .hc_eps = shape_.hc_eps,
                        .norm_eps = shape_.norm_eps});
  });
  return m;
}

Vec CpuOps::collapse(const Vec& x, const Vec& pre) {
  const int64_t n = std::ssize(pre) / shape_.n_streams;
  Vec y(static_cast<size_t>(n * shape_.dim));
  ops::hyper_collapse_ref(
      {.x = x.data(), .pre = pre.data(), .y = y.data(), .n_rows = n, .n_streams = shape_.n_streams, .dim = shape_.dim});
  return y;
}

void CpuOps::expand(const Vec& y, const Mix& mix, Vec& x) {
  const int64_t s = shape_.n_streams, d = shape_.dim, n = std::ssize(y) / d;
  pool_.for_range(n, min_piece(s * s * d), [&](int64_t begin, int64_t end) {
    ops::hyper_expand_ref({.y = y.data() + begin * d,
                           .post = mix.post.data() + begin * s,
                           .comb = mix.comb.data() + begin * s * s,
                           .x = x.data() + begin * s * d,
                           .n_rows = end - begin,
                           .n_streams = s,
                           .dim = d});
  });
}

Vec CpuOps::stream_mean(const Vec& x) {
  const int64_t n = std::ssize(x) / (shape_.n_streams * shape_.dim);
  const Vec equal(static_cast<size_t>(n * shape_.n_streams), 1.0f / static_cast<float>(shape_.n_streams));
  return collapse(x, equal);
}

void CpuOps::attention(const ops::SparseAttentionArgs& args) {
  const int64_t row = args.n_heads * args.head_dim;
  pool_.for_range(args.n_rows, min_piece(row * 64), [&](int64_t begin, int64_t end) {
    ops::SparseAttentionArgs part = args;
    part.q += begin * row;
    part.out += begin * row;
    part.window_begin += begin;
    part.window_end += begin;
    if (part.selection != nullptr) part.selection += begin * args.n_selected;
    part.n_rows = end - begin;
    ops::sparse_attention_ref(part);
  });
}

void CpuOps::experts(const ops::MoeExpertsArgs& args) {
  // An observer sees the rows in order, so they stay in one piece.
  pool_.for_range(args.n_rows, observer_ != nullptr ? args.n_rows : 1, [&](int64_t begin, int64_t end) {
    ops::MoeExpertsArgs part = args;
    part.observer = observer_;
    part.x += begin * args.dim;
    part.y += begin * args.dim;
    part.ids += begin * args.k;
    part.weights += begin * args.k;
    part.n_rows = end - begin;
    ops::moe_experts_ref(part);
  });
}

}  // namespace dsf::serve::cpu
