#pragma once
// Reads one named weight of a checkpoint as f32, whatever form it is stored in. Borrows the checkpoint; any thread.
// Source: model.md section 2, exl3.md section 2.
#include <string>

#include "dsf/base/result.h"
#include "dsf/model/split.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/serve/engine/weights.h"

namespace dsf::serve {

class WeightReader {
 public:
  explicit WeightReader(const safetensors::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  const safetensors::Checkpoint& checkpoint() const { return checkpoint_; }

  // A tensor of any float type with n elements.
  Result<Vec> vector(const std::string& name, int64_t n) const;
  // A linear `name` [out, in]: name.trellis (EXL3), name.weight with name.scale (E4M3 or FP4), or name.weight alone.
  Result<Linear> linear(const std::string& name, int64_t out, int64_t in) const;
  // Outputs or inputs part of a linear [out, in]: one rank's. Bit for bit the part of the whole; of a pack only the
  // part is decoded.
  Result<Linear> outputs(const std::string& name, int64_t out, int64_t in, model::Range part) const;
  Result<Linear> inputs(const std::string& name, int64_t out, int64_t in, model::Range part) const;
  // Groups part of wo_a: name.slice.{g} in an EXL3 pack, otherwise one matrix [groups*out, in] cut into equal parts.
  Result<std::vector<Linear>> grouped(const std::string& name, int64_t groups, int64_t out, int64_t in,
                                      model::Range part) const;

 private:
  const safetensors::Checkpoint& checkpoint_;
};

}  // namespace dsf::serve
