#pragma once
// CudaEngine: the Engine on one device. Same sessions, limits and errors as the CPU engine; one thread calls it.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "dsf/engram/token_map.h"
#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/engine/engine.h"
#include "tools/serve/engine/engram_reader.h"
#include "tools/serve/engine/engram_rows.h"

namespace dsf::serve::cuda {

enum class LoadFormat { kCheckpoint, kDummy };

// What the engine takes of the device, in bytes; exact, computed before the first allocation.
struct CudaMemory {
  size_t weights = 0, caches = 0, workspace = 0;
  size_t reserve = 0;    // kernels, graphs, the loader's buffers
  size_t available = 0;  // free now
  size_t total() const { return weights + caches + workspace + reserve; }
};

struct CudaEngineOptions {
  std::filesystem::path model_dir;                // config.json, shards, index
  std::filesystem::path engram_dir;               // packed row files; empty: tables of the checkpoint
  std::optional<engram::TokenMap> token_map;      // nothing: from model_dir
  std::optional<model::Config> config;            // nothing: model_dir/config.json
  int64_t max_model_len = 0;                      // 0: max_position_embeddings
  int64_t max_step_tokens = 512;
  int max_sessions = 8;
  int device = 0;
  bool fake_quant = true;
  bool f32_caches = false;                        // fake-quantised caches as f32, with the same result: to look into them
  int engram_threads = 8;                         // that read Engram rows ahead of the layers
  bool graphs = true;                             // false: every step is launched kernel by kernel, with the same result
  bool dequantise = false;                        // packed weights as f32: the debug mode, for small models
  LoadFormat load_format = LoadFormat::kCheckpoint;
  int64_t dummy_experts = 0;                      // of kDummy: routed experts instead of the configuration's; 0 keeps them
  int load_threads = 8;
  // Of a tensor parallel run: this rank's share of the model. Every rank takes the same steps in the same order.
  int rank = 0, world = 1;
  comm::DeviceCollective* collective = nullptr;   // borrowed; needed with world > 1
  std::function<void(const CudaMemory&)> on_plan = {};  // told before anything is loaded, also when it does not fit
};

class CudaEngine final : public Engine {
 public:
  // Errors: kMissing for the device, the checkpoint, the tables; kContent; kLocal when device memory is short, before anything is loaded.
  static Result<std::unique_ptr<CudaEngine>> open(CudaEngineOptions options);

  const model::Config& config() const override { return config_; }
  const EngineLimits& limits() const override { return limits_; }
  Result<SessionId> open() override;
  void close(SessionId session) override;
  int64_t length(SessionId session) const override;
  Result<StepOutput> step(std::span<const StepItem> items) override;
  bool chooses() const override { return true; }
  Result<void> truncate(SessionId session, int64_t length) override;
  std::vector<std::pair<std::string, std::string>> identity() const override;

  // For measuring: the session claims to hold `length` tokens that were never computed. Errors: kUsage for an unknown session or a length beyond
  // max_model_len.
  Result<void> pretend(SessionId session, int64_t length);

  Trace& trace() { return forward_->trace; }
  const CudaForward& forward() const { return *forward_; }
  const LoadReport& load_report() const { return weights_.report(); }
  const CudaMemory& memory() const { return memory_; }

 private:
  struct Session {
    int slot = 0;
    std::vector<int32_t> tokens;
  };
  CudaEngine() = default;
  Result<void> load(const CudaEngineOptions& options);
  Result<void> check_memory(const CudaEngineOptions& options, WeightSource& source);
  CudaForwardOptions forward_options(const CudaEngineOptions& options) const;
  Result<void> check(std::span<const StepItem> items) const;
  void start_engram(std::span<const StepItem> items);
  Result<void> finish_choices(std::span<const StepItem> items, int64_t n_host, std::vector<int32_t>& chosen);

  model::Config config_;
  EngineLimits limits_;
  gpu::Facts device_;
  DeviceShare share_;
  CudaMemory memory_;
  std::string form_;  // of the weights, for identity()
  DeviceModel weights_;
  std::optional<EngramRows> engram_;
  std::unique_ptr<CudaForward> forward_;  // borrows config_ and weights_
  std::unique_ptr<EngramReader> reader_;  // borrows engram_, writes into forward_'s memory
  std::map<SessionId, Session> sessions_;
  std::vector<bool> slot_used_;
  SessionId next_id_ = 1;
  Chooser chooser_;
};

}  // namespace dsf::serve::cuda
