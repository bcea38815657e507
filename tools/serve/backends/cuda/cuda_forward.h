#pragma once
// CudaForward: the backbone on one device, as a list of launches over the rows of a step, whatever their sessions.
//
// Borrows configuration and weights. Owns workspace and the caches of `slots` sessions, all allocated in create(); a
// step allocates nothing. Caches are arrays [slot, row, dim] in the model's own formats (ops/cache_rows), in f32 without
// fake quantisation, so a row of a step needs only offsets (StepBlock), and one launch serves all sessions. One thread,
// one stream. Source: model.md sections 3 to 8; the CPU counterpart is engine/forward.h.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/comm/device_collective.h"
#include "dsf/gpu/gpu.h"
#include "tools/serve/backends/cuda/device_model.h"
#include "tools/serve/backends/cuda/packed_linears.h"
#include "tools/serve/backends/cuda/step_graphs.h"
#include "tools/serve/backends/ops/choose_token/choose_token.h"
#include "tools/serve/backends/ops/fake_quant/fake_quant.h"
#include "tools/serve/engine/trace.h"

namespace dsf::serve::cuda {

struct CudaForwardOptions {
  int64_t max_rows = 512;  // of a step
  int64_t max_len = 0;     // positions of a session
  int slots = 8;
  int64_t max_logit_rows = 512;
  bool fake_quant = true;
  bool f32_caches = false;  // keep fake-quantised caches as f32 nevertheless; the result is the same bits
  bool graphs = true;       // steps of few rows are captured and replayed; the result is the same bits
  size_t max_graphs = 48;
  comm::DeviceCollective* collective = nullptr;  // of the ranks, borrowed; needed when the weights are a share
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
  static Result<std::unique_ptr<CudaForward>> create(const model::Config& config, const DeviceModel& weights,
                                                     const gpu::Facts& device, const CudaForwardOptions& options);

  // What create() will allocate on the device. weights: as planned (DeviceModel::plan) is enough.
  static Result<ForwardBytes> plan(const model::Config& config, const DeviceModel& weights, const gpu::Facts& device,
                                   const CudaForwardOptions& options);

  // Pinned room for the records of a step's rows, [max_rows, columns, record], of the Engram layer with this index.
  // Written between steps and until EngramWait returns for it.
  std::span<std::byte> engram_input(size_t table);
  // Called within run(), table by table, when the layers before have been launched: returns once engram_input(table) is
  // filled.
  using EngramWait = std::function<Result<void>(size_t table)>;

  // rows: a session's rows are consecutive positions, ascending. The first n_host rows of wanted come back as logits,
  // in pinned memory: [n_host, V]; after each of the others one token is chosen by its entry of choices, kUndecided and
  // kNotFinite included (choose_token.h). What is returned is borrowed until the next call.
  struct Wanted {
    std::span<const int64_t> rows;
    int64_t n_host = 0;
    std::span<const ops::TokenChoice> choices;  // [rows.size() - n_host]
  };
  struct Output {
    std::span<const float> logits;
    std::span<const int32_t> ids;
  };
  Result<Output> run(std::span<const Row> rows, const EngramWait& engram, const Wanted& wanted);
  // Logits of wanted row `index` of the last run(), [V]; borrowed until the next call of either.
  Result<std::span<const float>> fetch_logits(int64_t index);

  size_t cache_bytes() const { return cache_bytes_; }
  // Of a session, whatever its length goes up to: compressed rows and index keys of every source.
  size_t cache_bytes_per_token() const;
  size_t workspace_bytes() const { return workspace_bytes_; }
  const StepGraphs& graphs() const { return graphs_; }
  Trace trace;  // device work is waited for wherever a hook is set

 private:
  struct Cache {  // one of the two; packed: ops/cache_rows
    float* f32 = nullptr;
    uint8_t* packed = nullptr;
  };
  struct Source {                             // caches of one KV source layer
    float *value = nullptr, *gate = nullptr;  // rings [slot, ring_rows, hd]
    Cache rows;                               // [slot, max_groups, hd]
    Cache keys;                               // [slot, max_groups, index_dim]
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
  Result<Cache> cache(int64_t rows, int64_t dim, ops::FakeQuant format);
  Result<void> allocate_caches();
  Result<void> allocate_exchange();
  static size_t step_bytes(int64_t n_rows) { return static_cast<size_t>(n_rows) * sizeof(int64_t) * 15; }
  static StepBlock carve(void* base, int64_t n_rows);
  bool traced() const { return trace.enter || trace.values || trace.ids; }
  void fill_row(int64_t i, const Row& r, bool writes);
  int64_t n_stages() const;
  Result<void> launch_stage(int64_t stage);
  Result<void> upload_step(std::span<const Row> rows, std::span<const int64_t> logit_rows);
  Result<void> launch_choices(const Wanted& wanted);
  int64_t engram_record_bytes() const { return config_.engram_head_dim + config_.engram_head_dim / 32; }
  Result<void> upload_engram(size_t table, int64_t real, const EngramWait& engram);

  Result<void> layer(int64_t index);
  Result<void> before_mix(int64_t index);
  Result<void> step_streams(const DeviceHyper* mix, const float* norm);
  Result<void> expand_only();
  Result<void> attention(int64_t index);
  Result<void> compress(int64_t index);
  Result<void> select(int64_t index);
  Result<void> select_piece(const model::LayerRole& role, const Source& src, const StepBlock::PerRatio& at, int64_t r,
                            int64_t count, int64_t n_keys);
  Result<void> attend(int64_t index);
  Result<void> experts(int64_t index);
  Result<void> linear(const float* x, const DeviceLinear& l, float* y, int64_t n_rows);
  // logits_ of n_rows rows, whole on every rank.
  Result<void> head(const float* x, int64_t n_rows);
  // values [n_, hidden_size] of every rank added up, in rank order.
  Result<void> sum_ranks(float* values);
  Result<void> wait();
  const float* frequencies(int64_t ratio) const;  // of a layer's rope
  Result<void> rope(float* x, const int64_t* positions, int64_t heads, int64_t width, int64_t ratio);
  Result<void> store(float* x, const int64_t* place, const Cache& to, int64_t dim, ops::FakeQuant format);
  // Linears of one input, at most one launch group (packed_linears.h); those the layer does not have are left out.
  Result<void> linears(const float* x, std::initializer_list<LinearTask> tasks, int64_t n_rows);
  Result<void> output_groups(const DeviceLayer& w);
  Result<void> quantise(float* x, int64_t n, ops::FakeQuant format);
  Result<void> report(std::string_view what, int64_t layer, const float* device, int64_t per_row);
  Result<void> report_ids(std::string_view what, int64_t layer, const int32_t* device, int64_t per_row);
  Result<void> report_enter(int64_t layer);

  const model::Config& config_;
  const DeviceModel& weights_;
  CudaForwardOptions options_;
  std::vector<model::LayerRole> roles_;
  int64_t ring_rows_ = 0;
  int64_t n_ = 0, n_logits_ = 0,
          longest_ = 0;     // of the step: rows, those with logits, both with what fills a bucket; longest session
  int64_t score_skip_ = 0;  // queries that see no more rows than this need no scores
  gpu::Stream stream_;
  PackedLinears packed_;
  std::vector<gpu::DeviceBuffer> owned_;
  gpu::PinnedBuffer step_host_, logits_host_;
  gpu::DeviceBuffer step_device_;
  // Of the rows whose token is chosen here, [max_logit_rows] each.
  struct ChoiceBlock {
    ops::TokenChoice* choices;
    int32_t* ids;
  };
  static size_t choice_bytes(int64_t n) {
    return static_cast<size_t>(n) * (sizeof(ops::TokenChoice) + sizeof(int32_t));
  }
  static ChoiceBlock carve_choices(void* base, int64_t n);
  gpu::PinnedBuffer choice_host_;
  gpu::DeviceBuffer choice_device_;
  StepBlock host_{}, device_{};
  int64_t heads_ = 0, groups_ = 0;  // this rank's
  uint64_t steps_ = 0;
  bool planning_ = false;  // count, allocate nothing
  size_t cache_bytes_ = 0, workspace_bytes_ = 0;

  float *window_freq_ = nullptr, *compressed_freq_ = nullptr;
  std::vector<Cache> window_;    // [layers] rings [slot, ring_rows, hd]
  std::vector<Source> sources_;  // [layers]
  Streams s_{};
  bool exact_rows_ = false;     // cached rows are exact in bf16, and attention has tensor cores for them
  bool packed_caches_ = false;  // caches are in their own formats
  bool pending_ = false;        // y_ still has to be expanded into the streams
  float *h_ = nullptr, *y_ = nullptr, *lora_ = nullptr, *q_ = nullptr, *kv_ = nullptr, *gate_ = nullptr,
        *latent_ = nullptr, *key_ = nullptr;
  float *index_q_ = nullptr, *index_w_ = nullptr, *score_ = nullptr, *select_ = nullptr, *attn_ = nullptr,
        *partial_ = nullptr, *choice_ = nullptr, *z_ = nullptr;
  float *route_ = nullptr, *expert_weights_ = nullptr, *hidden_ = nullptr, *engram_kv_ = nullptr,
        *hyper_partial_ = nullptr, *picked_ = nullptr, *logits_ = nullptr, *gathered_ = nullptr;
  int32_t *expert_ids_ = nullptr, *selection_ = nullptr, *blocks_ = nullptr;
  struct EngramInput {
    uint8_t* records = nullptr;  // [max_rows, columns, record]
    float* values = nullptr;     // [max_rows, columns * head_dim]
  };
  std::vector<EngramInput> engram_;  // [Engram layers]
  std::vector<gpu::PinnedBuffer> engram_host_;
  StepGraphs graphs_;
};

}  // namespace dsf::serve::cuda
