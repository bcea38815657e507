#pragma once
// The shares of the list's splits, and how they become one result: what the kernels of sparse_attention have in common.
// .cu files only.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/common/device.cuh"

namespace dsf::serve::ops {

inline constexpr int kSplit = 64;  // list entries per block: the list is cut at multiples of it

inline int64_t splits_of(int64_t max_window, int64_t n_selected) {
  return (max_window + n_selected + kSplit - 1) / kSplit;
}

struct Partials {
  float* data;
  int64_t head_dim;
  // Per (row, head, split): max, sum, then head_dim accumulators. With the max at -infinity nothing else is set.
  __device__ float* at(const SparseAttentionArgs& a, int64_t row, int64_t head, int64_t split, int64_t n_splits) const {
    return data + ((row * a.n_heads + head) * n_splits + split) * (head_dim + 2);
  }
};

// Writes a.out. Defined in sparse_attention.cu.
Result<void> join_splits(const SparseAttentionArgs& a, const Partials& partials, int64_t n_splits, const OutputRotation& rotation, CudaStream stream);

}  // namespace dsf::serve::ops
