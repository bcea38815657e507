#pragma once
// The random 10-layer checkpoint with outputs of two independent implementations (shared data, tiny_v41), as the
// engine's tests use it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsf/safetensors/safetensors.h"
#include "tools/serve/engine/cpu_engine.h"

namespace dsf::serve::test {

using Floats = std::vector<float>;
using Ids = std::vector<int32_t>;

class Tiny {
 public:
  // Nothing, with a visible skip, when the shared data is not there.
  static std::optional<Tiny> open(const char* test);

  std::filesystem::path dir() const { return dir_; }
  Floats floats(const std::string& name) const;
  Ids ids(const std::string& name) const;
  // The prompt, then its greedy continuation without the last id, which no step feeds.
  Ids fed(int prompt) const;
  std::unique_ptr<CpuEngine> engine(bool fake_quant, CpuEngineOptions options = {}) const;

 private:
  std::filesystem::path dir_;
  std::unique_ptr<safetensors::File> golden_;
};

// Appends tokens in one step and gives the logits of all of them.
Floats feed(CpuEngine& engine, SessionId session, std::span<const int32_t> tokens);
// The same in steps of at most chunk tokens.
Floats feed_chunks(CpuEngine& engine, SessionId session, std::span<const int32_t> tokens, int64_t chunk);
SessionId open_session(CpuEngine& engine);

float max_difference(std::span<const float> a, std::span<const float> b);
Ids argmax_rows(std::span<const float> logits, int64_t width);

}  // namespace dsf::serve::test
