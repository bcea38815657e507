#pragma once
// CpuEngine: the whole model on the CPU in f32. The oracle that kernels are judged by, and the backend of small models.
//
// Owns configuration, weights, Engram rows and sessions. One thread calls it (engine.h); it uses `threads` inside a
// step. The same token in the same context gives the same bits whatever chunk, batch or thread count it is in. Memory:
// four bytes per weight. Source: model.md sections 3 to 9, serving.md section 6.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "dsf/engram/token_map.h"
#include "tools/serve/engine/engine.h"
#include "tools/serve/engine/engram_rows.h"
#include "tools/serve/engine/forward.h"

namespace dsf::serve {

struct CpuEngineOptions {
  std::filesystem::path model_dir = {};   // config.json, shards, index
  std::filesystem::path engram_dir = {};  // packed row files of every rank, or shards with the tables; empty: model_dir
  std::optional<engram::TokenMap> token_map =
      {};                                    // nothing: from model_dir (tokenizer.json, else engram_token_map.json)
  std::optional<model::Config> config = {};  // nothing: model_dir/config.json. For variants of one checkpoint
  int64_t max_model_len = 0;                 // 0: max_position_embeddings
  int64_t max_step_tokens = 512;
  int max_sessions = 8;
  int threads = 0;         // 0: the machine's
  bool fake_quant = true;  // the trained cache formats; off for comparisons in plain f32
  bool draft = true;       // load mtp.* when the configuration has draft blocks and the checkpoint holds them
  comm::Communicator* comm = nullptr;  // of this engine's rank, borrowed; nullptr: one rank. All ranks step alike
};

class CpuEngine final : public Engine {
 public:
  // Errors: kMissing, kContent for the checkpoint and the tables; kUsage for limits that make no sense.
  static Result<std::unique_ptr<CpuEngine>> open(CpuEngineOptions options);

  const model::Config& config() const override { return config_; }
  const EngineLimits& limits() const override { return limits_; }
  Result<SessionId> open() override;
  void close(SessionId session) override;
  int64_t length(SessionId session) const override;
  Result<StepOutput> step(std::span<const StepItem> items) override;
  bool chooses() const override { return true; }
  std::vector<std::pair<std::string, std::string>> identity() const override;

  Result<void> truncate(SessionId session, int64_t length) override;
  const Ranks& ranks() const { return *ranks_; }
  bool has_drafter() const override { return weights_.draft.has_value(); }
  Result<DraftOutput> draft(SessionId session, int32_t pending) override;

  Trace& trace() { return forward_->trace; }
  // What matrices multiply from the next step or draft on goes to the observer first (borrowed, nullptr for none);
  // it knows them by their place in weights().
  void observe(ops::InputObserver* observer) { forward_->observe(observer); }
  const ModelWeights& weights() const { return weights_; }

 private:
  CpuEngine() = default;
  Result<void> check(std::span<const StepItem> items) const;
  Result<Step> make_step(std::span<const StepItem> items);
  Result<std::vector<int32_t>> choose(Step& step, const std::vector<int64_t>& rows, std::span<const StepItem> items);

  std::filesystem::path model_dir_;
  model::Config config_;
  EngineLimits limits_;
  ModelWeights weights_;
  std::unique_ptr<Ranks> ranks_;
  std::optional<EngramRows> engram_;
  std::unique_ptr<Forward> forward_;  // borrows config_ and weights_
  std::map<SessionId, SessionState> sessions_;
  SessionId next_id_ = 1;
  Vec logits_;
  Chooser chooser_;
};

Result<std::unique_ptr<Engine>> open_cpu_engine(CpuEngineOptions options);

}  // namespace dsf::serve
