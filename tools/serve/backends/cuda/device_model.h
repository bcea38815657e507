#pragma once
// The model's weights on the device. DeviceModel owns its memory; written once, then read by the forward on one stream.
//
// Linears whose values are all exact in bf16 (every native format is) are kept so, others in f32: nothing is rounded here. Key as in
// engine/weights.h: D hidden, S streams, H heads, hd head_dim, I expert width, E experts, V vocabulary.
#include <cstdint>
#include <optional>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"
#include "tools/serve/engine/weights.h"

namespace dsf::serve::cuda {

struct DeviceLinear {
  const float* f32 = nullptr;      // [out, in], one of the two
  const uint16_t* bf16 = nullptr;
  int64_t out = 0, in = 0;
};

struct DeviceHyper {
  const float *fn = nullptr, *base = nullptr, *scale = nullptr;
};

struct DeviceLayer {
  DeviceHyper hc_attn, hc_ffn;
  const float *attn_norm = nullptr, *ffn_norm = nullptr;                             // [D]
  DeviceLinear wq_a, wq_b, wkv, wo_a, wo_b;                                           // wo_a: groups below each other [groups * o_lora, in]
  const float *q_norm = nullptr, *kv_norm = nullptr, *sink = nullptr;
  DeviceLinear compress_wkv, compress_wgate, index_wk;                                // KV sources
  const float *compress_norm = nullptr, *index_k_norm = nullptr;
  DeviceLinear index_wq_b, index_weights;                                             // index sources; weights scaled by (dim * heads)^-0.5
  DeviceLinear engram_wkv;                                                            // Engram layers
  const float *engram_q = nullptr, *engram_k = nullptr;
  const float *gate = nullptr, *gate_bias = nullptr;                                  // [E, D], [E]
  const ops::ExpertWeights* experts = nullptr;                                        // [E + 1] on the device, the shared one last
  bool has_shared = false;
};

class DeviceModel {
 public:
  // Copies every backbone weight. Errors: kMissing without a device, kLocal when memory is short.
  static Result<DeviceModel> upload(const model::Config& config, const ModelWeights& weights);

  DeviceLinear embed, head;
  const float* norm = nullptr;
  std::vector<DeviceLayer> layers;
  int64_t max_expert_width = 0;
  size_t bytes() const { return bytes_; }

 private:
  friend class Uploader;
  std::vector<gpu::DeviceBuffer> owned_;
  size_t bytes_ = 0;
};

}  // namespace dsf::serve::cuda
