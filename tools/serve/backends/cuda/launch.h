#pragma once
// Launchers of the ops on the device: the same argument structs as the oracle, with device pointers.
//
// A launcher validates shapes, launches on the given stream and checks the launch; it allocates nothing, waits for nothing and reads no
// environment. Activations are f32: at decode their bytes do not matter beside the weights', and the same kernels serve the debug mode that
// meets the oracle's bounds. Every row's result is the same bits whatever rows are computed beside it.
// Errors: kUsage for shapes a kernel has no instance for, kBug for a failed launch (the CUDA name is in the text).
#include <cstddef>
#include <cstdint>
#include <span>

#include "dsf/base/result.h"
#include "tools/serve/backends/ops/engram_gate/engram_gate.h"
#include "tools/serve/backends/ops/fake_quant/fake_quant.h"
#include "tools/serve/backends/ops/hyper_mix/hyper_mix.h"
#include "tools/serve/backends/ops/hyper_mix/hyper_step.h"
#include "tools/serve/backends/ops/kv_compress/kv_compress.h"
#include "tools/serve/backends/ops/linear/linear.h"
#include "tools/serve/backends/ops/moe_experts/moe_experts.h"
#include "tools/serve/backends/ops/moe_route/moe_route.h"
#include "tools/serve/backends/ops/rmsnorm/rmsnorm.h"
#include "tools/serve/backends/ops/rope/rope.h"
#include "tools/serve/backends/ops/sparse_attention/sparse_attention.h"

struct CUstream_st;

namespace dsf::serve::ops {

using CudaStream = CUstream_st*;

Result<void> rmsnorm_cuda(const RmsNormArgs& a, CudaStream stream);
// One or two rmsnorms in one launch; with a rope_dim, rope of each row as one head follows.
struct NormRows {
  RmsNormArgs norm;
  const int64_t* positions = nullptr;  // [n_rows]
  const float* freq = nullptr;         // [rope_dim / 2]
  int64_t rope_dim = 0;                // even, and the width is even then
};
Result<void> norm_rows_cuda(std::span<const NormRows> tasks, CudaStream stream);
Result<void> rope_cuda(const RopeArgs& a, CudaStream stream);
Result<void> fake_quant_cuda(const FakeQuantArgs& a, CudaStream stream);

// partial: workspace of hyper_step_workspace(n_rows, dim) floats.
int64_t hyper_step_workspace(int64_t n_rows, int64_t dim);
Result<void> hyper_step_cuda(const HyperStepArgs& a, float* partial, CudaStream stream);

// Several linears of one shape side by side: group g reads x + g*x_step, w + g*out*in (dense) and writes y + g*y_step.
struct LinearGroups {
  int64_t count = 1, x_step = 0, y_step = 0;
};
// w: f32 [out, in] as in LinearArgs. w_bf16: when not null it is used instead, bf16 [out, in]. in must be a multiple of 8.
Result<void> linear_cuda(const LinearArgs& a, const uint16_t* w_bf16, CudaStream stream, const LinearGroups& groups = {});

// kv_compress over the rows of a step, whatever their sessions: row r closes the group that begins at first_position[r], or none (-1).
struct KvCompressRowsArgs {
  const float* value = nullptr;             // rings of all sessions [*, dim]
  const float* gate = nullptr;              // like value; nullptr when ratio is 1
  const float* norm = nullptr;              // [dim]
  float* latent = nullptr;                  // [n_rows, dim]; zeros for rows that close no group
  const int64_t* first_position = nullptr;  // [n_rows]
  const int64_t* ring_offset = nullptr;     // [n_rows] where the row's session begins in the rings
  int64_t n_rows = 0, ratio = 1, ring_rows = 0, dim = 0;
  float eps = 1e-20f;
};
Result<void> kv_compress_rows_cuda(const KvCompressRowsArgs& a, CudaStream stream);

// partial: workspace of sparse_attention_workspace(...) floats for the whole call. max_window: an upper bound of window_end - window_begin.
int64_t sparse_attention_workspace(int64_t n_rows, int64_t n_heads, int64_t head_dim, int64_t max_window, int64_t n_selected);
// rotation: when it has positions, the last rope_dim values of every head's output are rotated back, as rope's inverse does.
struct OutputRotation {
  const int64_t* positions = nullptr;  // [n_rows]
  const float* freq = nullptr;         // [rope_dim / 2]
  int64_t rope_dim = 0;                // even
};
Result<void> sparse_attention_cuda(const SparseAttentionArgs& a, int64_t max_window, float* partial, CudaStream stream, const OutputRotation& rotation = {});

// logits: workspace [n_rows, n_experts] f32.
Result<void> moe_route_cuda(const MoeRouteArgs& a, float* logits, CudaStream stream);
// Dense f32 experts, for checkpoints that are not packed. experts and shared point to device memory that holds device pointers; hidden:
// workspace [n_rows, k + 1, max_inter] f32, max_inter: the largest inter among them.
Result<void> moe_experts_cuda(const MoeExpertsArgs& a, int64_t max_inter, float* hidden, CudaStream stream);

Result<void> engram_gate_cuda(const EngramGateArgs& a, CudaStream stream);

// ---- moving rows

// x[r, s, :] = table[tokens[r], :] for every stream s; pre[r] = (1, 0, ..). table: f32 or, when table_bf16 is given, bf16 [V, dim].
Result<void> embed_cuda(const float* table, const uint16_t* table_bf16, const int32_t* tokens, float* x, float* pre, int64_t n_rows, int64_t n_streams, int64_t dim,
                        CudaStream stream);
// to[place[r], :] = from[r, :]; rows with place -1 are left out.
Result<void> scatter_rows_cuda(const float* from, const int64_t* place, float* to, int64_t n_rows, int64_t dim, CudaStream stream);
// to[r, :] = from[place[r], :].
Result<void> gather_rows_cuda(const float* from, const int64_t* place, float* to, int64_t n_rows, int64_t dim, CudaStream stream);
// to[r * to_stride + d] = mean over the streams of x[r, s, d].
Result<void> stream_mean_cuda(const float* x, float* to, int64_t n_rows, int64_t n_streams, int64_t dim, int64_t to_stride, CudaStream stream);

}  // namespace dsf::serve::ops
