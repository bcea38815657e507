#pragma once
// CudaForward: the backbone on one device, as a list of launches over the rows of a step, whatever their sessions.
//
// Borrows configuration and weights. Owns workspace and the caches of `slots` sessions, all allocated in create(); a step allocates nothing.
// Caches are arrays [slot, row, dim] in f32, so a row of a step needs only offsets (StepRowsHost), and one launch serves all sessions.
// One thread, one stream. Source: model.md sections 3 to 8; the CPU counterpart is engine/forward.h.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"
#include "tools/serve/backends/cuda/device_model.h"
#include "tools/serve/backends/cuda/packed_linears.h"
#include "tools/serve/backends/ops/fake_quant/fake_quant.h"
#include "tools/serve/engine/trace.h"

namespace dsf::serve::cuda {

struct CudaForwardOptions {
  int64_t max_rows = 512;      // of a step
  int64_t max_len = 0;         // positions of a session
  int slots = 8;
  int64_t max_logit_rows = 512;
  bool fake_quant = true;
};

struct ForwardBytes {
  size_t caches = 0, workspace = 0;
};

// One row of a step: which token, where, in whose caches.
struct Row {
  int32_t token = 0;
  int64_t position = 0;
  int slot = 0;
};

class CudaForward {
 public:
  // Errors: kMissing without a device, kLocal when memory is short, kUsage for shapes without a kernel.
  static Result<std::unique_ptr<CudaForward>> create(const model::Config& config, const DeviceModel& weights, const gpu::Facts& device,
                                                     const CudaForwardOptions& options);

  // What create() will allocate on the device. weights: as planned (DeviceModel::plan) is enough.
  static Result<ForwardBytes> plan(const model::Config& config, const DeviceModel& weights, const gpu::Facts& device, const CudaForwardOptions& options);

  // rows: a session's rows are consecutive positions, ascending. engram[i]: [rows, columns * head_dim] of Engram layer i. logit_rows: rows
  // whose logits are wanted. The result is in pinned memory: [logit_rows.size(), V], borrowed until the next call.
  Result<std::span<const float>> run(std::span<const Row> rows, std::span<const std::vector<float>> engram, std::span<const int64_t> logit_rows);

  size_t cache_bytes() const { return cache_bytes_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  Trace trace;  // device work is waited for wherever a hook is set

 private:
  struct Source {  // caches of one KV source layer
    float *value = nullptr, *gate = nullptr;  // rings [slot, ring_rows, hd]
    float* rows = nullptr;                    // [slot, max_groups, hd]
    float* keys = nullptr;                    // [slot, max_groups, index_dim]
    int64_t max_groups = 0;
  };
  // What the launches read of a step; one block, copied at once. Index 1 and 2 of the pairs below: the ratio.
  struct StepBlock {
    int32_t* tokens;
    int64_t *positions, *window_begin, *window_end, *window_offset, *window_place, *logit_rows;
    struct PerRatio {
      int64_t *visible, *first_position, *group_place, *group_offset;
    };
    std::array<PerRatio, 3> ratio;
  };
  struct Streams {
    float *x, *pre, *next_pre, *post, *comb;
  };

  CudaForward(const model::Config& config, const DeviceModel& weights, const CudaForwardOptions& options);
  Result<void> allocate_all();
  Result<float*> floats(int64_t n, size_t& counter);
  StepBlock carve(void* base) const;
  Result<void> upload_step(std::span<const Row> rows, std::span<const std::vector<float>> engram, std::span<const int64_t> logit_rows);

  Result<void> layer(int64_t index);
  Result<void> before_mix(int64_t index);
  Result<void> step_streams(const DeviceHyper* mix, const float* norm);
  Result<void> expand_only();
  Result<void> attention(int64_t index);
  Result<void> compress(int64_t index);
  Result<void> select(int64_t index);
  Result<void> attend(int64_t index);
  Result<void> experts(int64_t index);
  Result<void> linear(const float* x, const DeviceLinear& l, float* y, int64_t n_rows);
  // Linears of one input, at most one launch group (packed_linears.h); those the layer does not have are left out.
  Result<void> linears(const float* x, std::initializer_list<LinearTask> tasks, int64_t n_rows);
  Result<void> output_groups(const DeviceLayer& w);
  Result<void> rope(float* x, const int64_t* positions, int64_t heads, int64_t width, int64_t ratio, bool inverse = false);
  Result<void> quantise(float* x, int64_t n, ops::FakeQuant format);
  Result<void> report(std::string_view what, int64_t layer, const float* device, int64_t per_row);
  Result<void> report_ids(std::string_view what, int64_t layer, const int32_t* device, int64_t per_row);
  Result<void> report_enter(int64_t layer);

  const model::Config& config_;
  const DeviceModel& weights_;
  CudaForwardOptions options_;
  std::vector<model::LayerRole> roles_;
  int64_t ring_rows_ = 0, n_ = 0, longest_ = 0;
  gpu::Stream stream_;
  PackedLinears packed_;
  std::vector<gpu::DeviceBuffer> owned_;
  gpu::PinnedBuffer step_host_, logits_host_;
  gpu::DeviceBuffer step_device_;
  StepBlock host_{}, device_{};
  bool planning_ = false;  // count, allocate nothing
  size_t step_bytes_ = 0, cache_bytes_ = 0, workspace_bytes_ = 0;

  float *window_freq_ = nullptr, *compressed_freq_ = nullptr;
  std::vector<float*> window_;   // [layers] rings [slot, ring_rows, hd]
  std::vector<Source> sources_;  // [layers]
  Streams s_{};
  bool pending_ = false;  // y_ still has to be expanded into the streams
  float *h_ = nullptr, *y_ = nullptr, *lora_ = nullptr, *q_ = nullptr, *kv_ = nullptr, *gate_ = nullptr, *latent_ = nullptr, *key_ = nullptr;
  float *index_q_ = nullptr, *index_w_ = nullptr, *score_ = nullptr, *attn_ = nullptr, *partial_ = nullptr, *z_ = nullptr;
  float *route_ = nullptr, *expert_weights_ = nullptr, *hidden_ = nullptr, *engram_kv_ = nullptr, *hyper_partial_ = nullptr, *picked_ = nullptr, *logits_ = nullptr;
  int32_t *expert_ids_ = nullptr, *selection_ = nullptr, *blocks_ = nullptr;
  std::vector<float*> engram_;   // [Engram layers]
};

}  // namespace dsf::serve::cuda
