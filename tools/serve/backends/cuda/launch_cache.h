#pragma once
// Launchers over packed caches (ops/cache_rows): the same contracts as launch.h, whose rules hold here too.
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/cache_rows/cache_rows.h"
#include "tools/serve/backends/ops/engram_gate/engram_rows.h"
#include "tools/serve/backends/ops/indexer_topk/index_rows.h"

namespace dsf::serve::ops {

Result<void> pack_rows_cuda(const PackRowsArgs& a, CudaStream stream);

// Launch shapes of these depend on n_rows and n_keys alone. dim must be a multiple of 32.
Result<void> index_rows_cuda(const IndexRowsArgs& a, CudaStream stream);
// Over packed keys, rows of packed_row_bytes(kIndex, dim), for the shapes that fit; a.keys is not read, and q holds
// fake_quant's results. Gives the bits of index_rows_cuda over the same keys unpacked.
bool index_rows_packed_fits(int64_t n_heads, int64_t dim);
Result<void> index_rows_packed_cuda(const IndexRowsArgs& a, const uint8_t* keys, CudaStream stream);

// workspace: select_workspace(n_rows, n, k) floats, n and k being n_keys (or max_blocks * block_size) and k for
// select_rows, the number of blocks of n_keys and max_blocks for select_blocks. select_blocks is candidate_blocks with
// scores as index_rows leaves them.
int64_t select_workspace(int64_t n_rows, int64_t n, int64_t k);
Result<void> select_rows_cuda(const SelectRowsArgs& a, float* workspace, CudaStream stream);
Result<void> select_blocks_cuda(const CandidateBlocksArgs& a, float* workspace, CudaStream stream);

// The same attention on tensor cores, with rows that are exact in bf16: either the f32 of a, or packed ones (window as
// kWindow, rows as kCompressed; a.window and a.rows are not read then). Both give the same bits. Queries and
// probabilities enter as sums of three bf16, so nothing is lost beside f32. For the widths that fit. partial:
// sparse_attention_workspace floats.
struct PackedCaches {
  const uint8_t* window = nullptr;  // rings; nullptr: f32 rows
  const uint8_t* rows = nullptr;
};
bool sparse_attention_mma_fits(int64_t head_dim);
Result<void> sparse_attention_mma_cuda(const SparseAttentionArgs& a, const PackedCaches& packed, int64_t max_window,
                                       float* partial, CudaStream stream, const OutputRotation& rotation = {});

Result<void> engram_rows_cuda(const EngramRowsArgs& a, CudaStream stream);

}  // namespace dsf::serve::ops
