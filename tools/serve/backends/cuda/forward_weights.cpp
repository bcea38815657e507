// The products with weights: one place decides by which kernel.
#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"
#include "tools/serve/backends/cuda/launch_weights.h"

namespace dsf::serve::cuda {

Result<void> CudaForward::linear(const float* x, const DeviceLinear& l, float* y, int64_t n_rows) {
  return linears(x, {{.l = &l, .y = y, .y_stride = l.out}}, n_rows);
}

Result<void> CudaForward::linears(const float* x, std::initializer_list<LinearTask> tasks, int64_t n_rows) {
  if (n_rows == 0) return {};
  LinearTask packed[ops::kExl3GemvMatrices];
  size_t n_packed = 0;
  for (const LinearTask& t : tasks) {
    if (t.l->out == 0) continue;
    if (t.l->packed()) {
      packed[n_packed++] = t;
      continue;
    }
    DSF_OK(ops::linear_weights_cuda({.x = x + t.x_offset, .w = t.l->f32, .y = t.y, .n_rows = n_rows, .in = t.l->in, .out = t.l->out, .x_stride = t.l->in, .y_stride = t.y_stride},
                            {.bf16 = t.l->bf16, .f16 = t.l->f16}, raw(stream_)));
  }
  if (n_packed == 0) return {};
  return packed_.run(stream_, x, packed[0].l->in, std::span(packed, n_packed), n_rows);
}

// attn_ to z_, each output group from its own heads.
Result<void> CudaForward::output_groups(const DeviceLayer& w) {
  const model::Config& c = config_;
  const int64_t row = heads_ * c.head_dim, z_row = groups_ * c.o_lora_rank;
  if (w.wo_a_slices.empty())
    return ops::linear_weights_cuda({.x = attn_, .w = w.wo_a.f32, .y = z_, .n_rows = n_, .in = w.wo_a.in, .out = c.o_lora_rank, .x_stride = row, .y_stride = z_row},
                            {.bf16 = w.wo_a.bf16}, raw(stream_), {.count = groups_, .x_step = w.wo_a.in, .y_step = c.o_lora_rank});
  LinearTask tasks[ops::kExl3GemvMatrices];
  size_t n = 0;
  for (size_t g = 0; g < w.wo_a_slices.size(); ++g) {
    const auto at = static_cast<int64_t>(g);
    tasks[n++] = {.l = &w.wo_a_slices[g], .y = z_ + at * c.o_lora_rank, .y_stride = z_row, .x_offset = at * w.wo_a.in};
    if (n < std::size(tasks) && g + 1 < w.wo_a_slices.size()) continue;
    DSF_OK(packed_.run(stream_, attn_, row, std::span(tasks, n), n_));
    n = 0;
  }
  return {};
}

Result<void> CudaForward::experts(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t k = c.num_experts_per_tok, shared_at = c.n_routed_experts;
  DSF_OK(linear(h_, w.gate, route_, n_));
  DSF_OK(ops::moe_choose_cuda({.x = nullptr, .gate = nullptr, .bias = w.gate_bias, .ids = expert_ids_, .weights = expert_weights_, .n_rows = n_, .dim = c.hidden_size,
                               .n_experts = c.n_routed_experts, .k = k, .temperature = static_cast<float>(c.gate_temp), .route_scale = static_cast<float>(c.routed_scaling_factor),
                               .normalise = c.norm_topk_prob}, route_, raw(stream_)));
  DSF_OK(report_ids("expert_ids", index, expert_ids_, k));
  DSF_OK(report("expert_weights", index, expert_weights_, k));
  const auto limit = static_cast<float>(c.swiglu_limit);
  if (w.packed_experts != nullptr) {
    DSF_OK(packed_.experts(stream_, {.x = h_, .ids = expert_ids_, .weights = expert_weights_, .experts = w.packed_experts,
                                     .shared = w.has_shared ? w.packed_experts + shared_at : nullptr, .y = y_, .n_rows = static_cast<int>(n_), .k = static_cast<int>(k),
                                     .dim = static_cast<int>(c.hidden_size), .inter = static_cast<int>(weights_.share.own.expert.size()), .limit = limit},
                           shared_at, w.expert_bits));
  } else {
    DSF_OK(ops::moe_experts_cuda({.x = h_, .ids = expert_ids_, .weights = expert_weights_, .experts = w.experts, .shared = w.has_shared ? w.experts + shared_at : nullptr,
                                  .y = y_, .n_rows = n_, .dim = c.hidden_size, .k = k, .limit = limit}, weights_.max_expert_width, hidden_, raw(stream_)));
  }
  return sum_ranks(y_);
}

Result<void> CudaForward::head(const float* x, int64_t n_rows) {
  const DeviceShare& s = weights_.share;
  if (s.world == 1) return linear(x, weights_.head, logits_, n_rows);
  const int64_t own = n_rows * s.vocab_width;
  DSF_OK(linears(x, {{.l = &weights_.head, .y = gathered_ + s.rank * own, .y_stride = s.vocab_width}}, n_rows));
  DSF_OK(options_.collective->all_gather(gathered_ + s.rank * own, gathered_, static_cast<size_t>(own) * sizeof(float), stream_));
  ops::JoinColumnsArgs join{.parts = gathered_, .to = logits_, .n_rows = n_rows, .width = s.vocab_width, .total = config_.vocab_size, .world = s.world, .begin = {}};
  for (int r = 0; r < s.world; ++r) join.begin[r] = s.vocab[static_cast<size_t>(r)].begin;
  return ops::join_columns_cuda(join, raw(stream_));
}

Result<void> CudaForward::sum_ranks(float* values) {
  if (weights_.share.world == 1) return {};
  return options_.collective->all_reduce_sum(values, n_ * config_.hidden_size, comm::Element::kF32, stream_);
}

Result<void> CudaForward::wait() {
  ++steps_;
  return options_.collective != nullptr ? options_.collective->wait(stream_, steps_) : stream_.wait();
}

}  // namespace dsf::serve::cuda
