#pragma once
// The backends of dsf-serve by name. The only place that knows which of them this build has.
//
// Any thread; the engine is then called by one. `note` is told what the engine plans and did, before and after loading, for the log.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/serve/engine/engine.h"

namespace dsf::serve {

using Notes = std::vector<std::pair<std::string, std::string>>;

struct EngineRequest {
  std::string backend = "cpu";             // a name of backend_names()
  std::filesystem::path model_dir;
  std::filesystem::path engram_dir;        // may be empty: tables of the checkpoint
  int64_t max_model_len = 0;               // 0: the model's
  int64_t max_step_tokens = 512;
  int max_sessions = 8;
  int threads = 0;                         // of the CPU backend, and readers of weights; 0: the machine's
  bool fake_quant = true;
  bool draft = false;                      // the drafter too, where checkpoint and backend have one
  int device = 0;                          // cuda
  bool graphs = true;                      // cuda: capture and replay steps of few rows
  bool dummy = false;                      // cuda: random weights, no files but config.json
  int64_t dummy_experts = 0;               // with dummy: routed experts; 0 keeps the configuration's
  std::function<void(std::string_view what, const Notes& notes)> note;
};

// What --backend takes, whether or not this build has it.
std::vector<std::string> backend_names();
// Errors: kMissing for a backend that this build lacks or a device that is not there; kUsage for a request that the backend cannot serve;
// those of the engines.
Result<std::unique_ptr<Engine>> open_engine(const EngineRequest& request);

}  // namespace dsf::serve
