#pragma once
// CudaEngine: the Engine on one device. Same sessions, limits and errors as the CPU engine; one thread calls it.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "dsf/engram/token_map.h"
#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/engine/engine.h"
#include "tools/serve/engine/engram_reader.h"
#include "tools/serve/engine/engram_rows.h"

namespace dsf::serve::cuda {

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
};

class CudaEngine final : public Engine {
 public:
  // Errors: kMissing for the device, the checkpoint, the tables; kContent; kLocal when device memory is short.
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

  Trace& trace() { return forward_->trace; }
  const CudaForward& forward() const { return *forward_; }

 private:
  struct Session {
    int slot = 0;
    std::vector<int32_t> tokens;
  };
  CudaEngine() = default;
  Result<void> check(std::span<const StepItem> items) const;
  void start_engram(std::span<const StepItem> items);
  Result<void> finish_choices(std::span<const StepItem> items, int64_t n_host, std::vector<int32_t>& chosen);

  model::Config config_;
  EngineLimits limits_;
  gpu::Facts device_;
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
