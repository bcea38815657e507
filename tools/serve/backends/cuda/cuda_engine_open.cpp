// Opening: configuration, the memory plan, then the weights.
#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/model/memory.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/serve/backends/cuda/checkpoint_source.h"
#include "tools/serve/backends/cuda/cuda_engine.h"
#include "tools/serve/backends/cuda/dummy_source.h"
#include "tools/serve/engine/weights.h"

namespace dsf::serve::cuda {
namespace {

// Code, local memory and graphs of the driver, and the loader's staging buffers.
constexpr size_t kReserve = 3 * size_t{kGiB} / 2;

std::string form_of(const DeviceModel& m, const CudaEngineOptions& o) {
  const bool packed = m.head.packed() || (!m.layers.empty() && m.layers.front().wq_b.packed());
  return std::string(o.load_format == LoadFormat::kDummy ? "dummy " : "") + (packed ? "exl3" : m.head.f32 != nullptr ? "f32" : "16-bit");
}

}  // namespace

CudaForwardOptions CudaEngine::forward_options(const CudaEngineOptions& o) const {
  return {.max_rows = o.max_step_tokens, .max_len = limits_.max_model_len, .slots = o.max_sessions, .max_logit_rows = o.max_step_tokens, .fake_quant = o.fake_quant,
          .f32_caches = o.f32_caches, .graphs = o.graphs, .collective = o.collective};
}

Result<void> CudaEngine::check_memory(const CudaEngineOptions& o, WeightSource& source) {
  DSF_TRY(const DeviceModel planned, DeviceModel::plan(config_, share_, source));
  DSF_TRY(const ForwardBytes forward, CudaForward::plan(config_, planned, device_, forward_options(o)));
  memory_ = {.weights = planned.bytes(), .caches = forward.caches, .workspace = forward.workspace, .reserve = kReserve, .available = 0};
  if (device_.integrated) {
    DSF_TRY(memory_.available, model::available_memory());
  } else {
    DSF_TRY(memory_.available, gpu::free_bytes());
  }
  if (o.on_plan) o.on_plan(memory_);
  if (memory_.total() <= memory_.available) return {};
  const bool weights_fit = memory_.weights + memory_.reserve < memory_.available;
  return fail(Code::kLocal, "device " + std::to_string(o.device),
              "needs " + format_bytes(memory_.total()) + ", " + format_bytes(memory_.available) + " are free (weights " + format_bytes(memory_.weights) + ", caches " +
                  format_bytes(memory_.caches) + ", workspace " + format_bytes(memory_.workspace) + ")",
              weights_fit ? "lower --max-model-len, --max-num-seqs or --prefill-chunk" : "the weights alone do not fit: use more devices or a smaller pack", "memory");
}

Result<void> CudaEngine::load(const CudaEngineOptions& o) {
  const auto fill = [&](WeightSource& source, model::StoredForm form) -> Result<void> {
    DSF_TRY(share_, DeviceShare::of(config_, o.rank, o.world, form));
    DSF_OK(check_memory(o, source));
    DSF_TRY(weights_, DeviceModel::load(config_, share_, source));
    form_ = form_of(weights_, o);
    return {};
  };
  if (o.load_format == LoadFormat::kDummy) {
    DSF_TRY(const std::unique_ptr<DummySource> source, DummySource::open(config_, 1));
    return fill(*source, model::StoredForm::kExl3);
  }
  DSF_TRY(const safetensors::Checkpoint checkpoint, safetensors::Checkpoint::open(o.model_dir));
  DSF_TRY(const std::unique_ptr<CheckpointSource> source,
          CheckpointSource::open(checkpoint, config_, device_, {.dequantise = o.dequantise, .device = o.device, .threads = o.load_threads}));
  return fill(*source, stored_form(checkpoint));
}

Result<std::unique_ptr<CudaEngine>> CudaEngine::open(CudaEngineOptions o) {
  if (o.max_sessions < 1 || o.max_step_tokens < 1 || o.max_model_len < 0 || o.dummy_experts < 0 || o.load_threads < 1)
    return fail(Code::kUsage, "cuda engine", "sessions, step tokens, model length, experts and threads must be positive");
  std::unique_ptr<CudaEngine> e(new CudaEngine());
  DSF_TRY(e->device_, gpu::open(o.device));
  if (o.config) {
    e->config_ = *o.config;
  } else {
    DSF_TRY(e->config_, model::load_config(o.model_dir / "config.json"));
  }
  model::Config& c = e->config_;
  if (o.load_format == LoadFormat::kDummy && o.dummy_experts > 0) {
    if (o.dummy_experts < c.num_experts_per_tok)
      return fail(Code::kUsage, "--dummy-experts", "a token chooses " + std::to_string(c.num_experts_per_tok) + " experts", "give at least as many");
    c.n_routed_experts = o.dummy_experts;
  }
  e->limits_ = {.max_model_len = o.max_model_len > 0 ? o.max_model_len : c.max_position_embeddings, .max_sessions = o.max_sessions, .max_step_tokens = o.max_step_tokens};
  if (o.world > 1 && o.collective == nullptr) return fail(Code::kBug, "cuda engine", "several ranks need a collective");
  DSF_OK(e->load(o));
  if (!c.engram_layer_ids.empty()) {
    DSF_TRY(e->engram_, o.load_format == LoadFormat::kDummy ? EngramRows::dummy(c, {}) : EngramRows::open(c, o.model_dir, o.engram_dir, std::move(o.token_map), {}));
    e->reader_ = std::make_unique<EngramReader>(e->engram_->source(), o.engram_threads);
  }
  DSF_TRY(e->forward_, CudaForward::create(e->config_, e->weights_, e->device_, e->forward_options(o)));
  e->slot_used_.assign(static_cast<size_t>(o.max_sessions), false);
  return e;
}

Result<void> CudaEngine::pretend(SessionId session, int64_t length) {
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return fail(Code::kUsage, "session " + std::to_string(session), "is not open");
  if (length < 0 || length > limits_.max_model_len) return fail(Code::kUsage, "session " + std::to_string(session), "cannot hold " + std::to_string(length) + " tokens");
  at->second.tokens.assign(static_cast<size_t>(length), 0);
  return {};
}

}  // namespace dsf::serve::cuda
