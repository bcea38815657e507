#pragma once
// MoE routers: where they are, and how one is attached. The engine and dsf-preflight call the same attach_router(), so that what
// preflight has proven is what the engine does.
//
// A router has a weight, a selection bias for text rows (gate.bias) and one for image rows (gate.bias_vl). Packs exist that dropped the
// latter; they may come from a second folder (a "sidecar"). Pure functions of the checkpoints; any thread. Source: engram.md 8, model.md 2.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::model {

struct RouterPlace {
  std::string gate;       // "layers.3.ffn.gate", "mtp.0.ffn.gate"
  int64_t n_experts = 0;
  bool draft = false;     // of a DSpark block
};
// Backbone layers in order, then DSpark blocks: 40 + 3 in the release.
std::vector<RouterPlace> router_places(const Config& config);

struct Router {
  std::vector<float> weight;                  // [n_experts, hidden_size]
  std::vector<float> bias;                    // [n_experts]
  std::optional<std::vector<float>> bias_vl;  // [n_experts]; nullopt: nobody has it, image rows would route with bias
};

// sidecar: where bias_vl is looked for when the checkpoint does not hold it; may be nullptr.
// Errors, naming the tensor: kMissing (weight or bias absent, class "missing_tensor"); kContent for another shape (class "shape"), a bias
// that is not F32 (class "dtype": it was cast on the way), not finite values (class "not_finite"), a bias_vl that stands in both places
// with different bytes (class "duplicate"), or one that is a copy of bias or all zero (class "not_an_image_bias").
Result<Router> attach_router(const safetensors::Checkpoint& checkpoint, const safetensors::Checkpoint* sidecar, const RouterPlace& place, int64_t hidden_size);

}  // namespace dsf::model
