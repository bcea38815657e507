#include "tools/serve/engine/ranks.h"

#include <algorithm>

namespace dsf::serve {

Result<void> Ranks::sum(std::vector<float>& values) const {
  return comm_ == nullptr || values.empty() ? Result<void>{} : comm_->all_reduce_sum(values);
}

Result<std::vector<float>> Ranks::join(std::vector<float> own, int64_t n, model::Range model::RankShare::*part,
                                       int64_t unit) const {
  if (comm_ == nullptr || n == 0) return own;
  // Ranks exchange equally many bytes: the shares are padded to the widest, which is the first.
  const int64_t widest = (split_.share(0).*part).size() * unit, width = (share().*part).size() * unit;
  std::vector<float> padded(static_cast<size_t>(n * widest)), all(padded.size() * static_cast<size_t>(world()));
  for (int64_t r = 0; r < n; ++r) std::copy_n(own.begin() + r * width, width, padded.begin() + r * widest);
  DSF_OK(comm_->all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all))));
  const int64_t total = (split_.shares().back().*part).end * unit;
  std::vector<float> out(static_cast<size_t>(n * total));
  for (int rank = 0; rank < world(); ++rank) {
    const model::Range range = split_.share(rank).*part;
    const auto from = all.begin() + rank * n * widest;
    for (int64_t r = 0; r < n; ++r)
      std::copy_n(from + r * widest, range.size() * unit, out.begin() + r * total + range.begin * unit);
  }
  return out;
}

}  // namespace dsf::serve
