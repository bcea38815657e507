// The products with weights: one place decides by which kernel.
#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"

namespace dsf::serve::cuda {

Result<void> CudaForward::linear(const float* x, const DeviceLinear& l, float* y, int64_t n_rows) {
  return ops::linear_cuda(
      {.x = x, .w = l.f32, .y = y, .n_rows = n_rows, .in = l.in, .out = l.out, .x_stride = l.in, .y_stride = l.out},
      l.bf16, raw(stream_));
}

Result<void> CudaForward::experts(int64_t index) {
  const DeviceLayer& w = weights_.layers[static_cast<size_t>(index)];
  const model::Config& c = config_;
  const int64_t k = c.num_experts_per_tok;
  DSF_OK(ops::moe_route_cuda({.x = h_,
                              .gate = w.gate,
                              .bias = w.gate_bias,
                              .ids = expert_ids_,
                              .weights = expert_weights_,
                              .n_rows = n_,
                              .dim = c.hidden_size,
                              .n_experts = c.n_routed_experts,
                              .k = k,
                              .temperature = static_cast<float>(c.gate_temp),
                              .route_scale = static_cast<float>(c.routed_scaling_factor),
                              .normalise = c.norm_topk_prob},
                             route_, raw(stream_)));
  DSF_OK(report_ids("expert_ids", index, expert_ids_, k));
  DSF_OK(report("expert_weights", index, expert_weights_, k));
  return ops::moe_experts_cuda({.x = h_,
                                .ids = expert_ids_,
                                .weights = expert_weights_,
                                .experts = w.experts,
                                .shared = w.has_shared ? w.experts + c.n_routed_experts : nullptr,
                                .y = y_,
                                .n_rows = n_,
                                .dim = c.hidden_size,
                                .k = k,
                                .limit = static_cast<float>(c.swiglu_limit)},
                               weights_.max_expert_width, hidden_, raw(stream_));
}

}  // namespace dsf::serve::cuda
