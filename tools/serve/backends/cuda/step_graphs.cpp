#include "tools/serve/backends/cuda/step_graphs.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace dsf::serve::cuda {

int64_t row_bucket(int64_t n) {
  constexpr std::array<int64_t, 12> kBuckets{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, kLargestBucket};
  const auto* const at = std::lower_bound(kBuckets.begin(), kBuckets.end(), n);
  return at == kBuckets.end() ? n : *at;
}

Result<void> StepGraphs::run(const gpu::Stream& stream, const StepShape& shape,
                             const std::function<Result<void>()>& record) {
  if (most_ == 0) return record();
  const auto [at, first_time] = entries_.try_emplace(shape);
  at->second.last_use = ++clock_;
  if (first_time) return record();
  if (!at->second.captured) {
    make_room();
    DSF_TRY(at->second.graph, gpu::Graph::capture(stream, record));
    at->second.captured = true;
  }
  return at->second.graph.launch(stream);
}

void StepGraphs::make_room() {
  if (count() < most_) return;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.captured && (oldest == entries_.end() || it->second.last_use < oldest->second.last_use)) oldest = it;
  }
  oldest->second.graph = {};
  oldest->second.captured = false;
}

size_t StepGraphs::count() const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& e) { return e.second.captured; }));
}

size_t StepGraphs::bytes() const {
  return std::accumulate(entries_.begin(), entries_.end(), size_t{0},
                         [](size_t sum, const auto& e) { return sum + e.second.graph.bytes(); });
}

}  // namespace dsf::serve::cuda
