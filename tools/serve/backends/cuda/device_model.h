#pragma once
// The model's weights on the device. DeviceModel owns its memory, one block; written once, then read by the forward on one stream.
//
// Linears stay in the form they have (EXL3 repacked into the lanes layout, bf16, fp16) or are f32; nothing is rounded here. Key as in
// engine/weights.h: D hidden, S streams, H heads, hd head_dim, I expert width, E experts, V vocabulary.
#include <cstdint>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"
#include "dsf/model/config.h"
#include "dsf/model/split.h"
#include "tools/serve/backends/cuda/weight_source.h"
#include "tools/serve/backends/ops/exl3_moe/exl3_moe.h"
#include "tools/serve/backends/ops/moe_experts/moe_experts.h"

namespace dsf::serve::cuda {

// What one rank of a tensor parallel run keeps (model/split.h); everything else stands whole on every rank.
struct DeviceShare {
  int rank = 0, world = 1;
  model::RankShare own;
  std::vector<model::Range> vocab;  // of every rank
  int64_t vocab_width = 0;          // the largest of them
  // Errors: those of model::Split::create; kUsage when rank is no rank of world.
  static Result<DeviceShare> of(const model::Config& config, int rank, int world, model::StoredForm form);
};

// One of the four is set, unless the layer does not have this linear (out is 0).
struct DeviceLinear {
  const float* f32 = nullptr;      // [out, in]
  const uint16_t* bf16 = nullptr;
  const uint16_t* f16 = nullptr;
  ops::Exl3Matrix exl3;            // bits is not 0
  int64_t out = 0, in = 0;
  bool packed() const { return exl3.bits != 0; }
};

struct DeviceHyper {
  const float *fn = nullptr, *base = nullptr, *scale = nullptr;
};

struct DeviceLayer {
  DeviceHyper hc_attn, hc_ffn;
  const float *attn_norm = nullptr, *ffn_norm = nullptr;                             // [D]
  DeviceLinear wq_a, wq_b, wkv, wo_b;
  DeviceLinear wo_a;                                                                  // dense: groups below each other [groups * o_lora, in]; out: of one group
  std::vector<DeviceLinear> wo_a_slices;                                              // packed: one per group, and wo_a holds the sizes alone
  const float *q_norm = nullptr, *kv_norm = nullptr, *sink = nullptr;
  DeviceLinear compress_wkv, compress_wgate, index_wk;                                // KV sources
  const float *compress_norm = nullptr, *index_k_norm = nullptr;
  DeviceLinear index_wq_b, index_weights;                                             // index sources; weights scaled by (dim * heads)^-0.5
  DeviceLinear engram_wkv;                                                            // Engram layers
  const float *engram_q = nullptr, *engram_k = nullptr;
  DeviceLinear gate;                                                                  // [E, D]
  const float* gate_bias = nullptr;                                                   // [E]
  // [E + 1] on the device, the shared one last; one of the two.
  const ops::ExpertWeights* experts = nullptr;                                        // dense f32
  const ops::Exl3Expert* packed_experts = nullptr;
  int expert_bits = 0;                                                                // the widest packed matrix
  bool has_shared = false;
};

class DeviceModel {
 public:
  // The shapes and forms of every backbone weight, without memory: pointers are null. bytes(): what load() will allocate.
  static Result<DeviceModel> plan(const model::Config& config, const DeviceShare& share, WeightSource& source);
  // Allocates and fills. Errors: kMissing without a device, kLocal when memory is short, and the source's.
  static Result<DeviceModel> load(const model::Config& config, const DeviceShare& share, WeightSource& source);

  DeviceShare share;

  DeviceLinear embed, head;
  const float* norm = nullptr;
  std::vector<DeviceLayer> layers;
  int64_t max_expert_width = 0;  // of dense experts
  size_t bytes() const { return bytes_; }
  const LoadReport& report() const { return report_; }

 private:
  friend class ModelBuilder;
  gpu::DeviceBuffer memory_;
  size_t bytes_ = 0;
  LoadReport report_;
};

}  // namespace dsf::serve::cuda
