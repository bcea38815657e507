#pragma once
// Ranks: what the forward of one rank asks of the others. Alone, every call is the identity.
//
// Borrows the communicator, which must outlive it; called by the engine's thread. Every rank calls the same things in
// the same order, and every rank gets the same bits. Errors: those of the communicator. Source: model.md 10,
// cluster.md 1.2.
#include <cstdint>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/comm/collective.h"
#include "dsf/model/split.h"

namespace dsf::serve {

class Ranks {
 public:
  explicit Ranks(const model::Config& config) : split_(model::Split::whole(config)) {}
  Ranks(model::Split split, comm::Communicator& comm) : split_(std::move(split)), comm_(&comm) {}

  int rank() const { return comm_ != nullptr ? comm_->rank() : 0; }
  int world() const { return split_.world(); }
  const model::Split& split() const { return split_; }
  const model::RankShare& share() const { return split_.share(rank()); }

  // values: every rank's part of a sum, replaced by the sum in rank order.
  Result<void> sum(std::vector<float>& values) const;
  // own: [n, this rank's range of part * unit] -> [n, all ranks' ranges side by side].
  Result<std::vector<float>> join(std::vector<float> own, int64_t n, model::Range model::RankShare::*part,
                                  int64_t unit = 1) const;

 private:
  model::Split split_;
  comm::Communicator* comm_ = nullptr;
};

}  // namespace dsf::serve
