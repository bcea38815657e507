#pragma once
// StepGraphs: steps of few rows captured once per shape and replayed.
//
// A shape is a number of rows and of rows with logits, both rounded up to a bucket, and a stage of the step, so there
// are few. The first step of a shape runs as it is, which also loads its kernels; the second is captured, and from then
// on replayed. Whatever differs between steps of one shape is read from the step block on the device. At most `most`
// graphs are kept, the longest unused goes first. One thread. Source: serving.md 7.7, conventions.md 5.
#include <cstdint>
#include <functional>
#include <map>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"

namespace dsf::serve::cuda {

struct StepShape {
  int64_t rows = 0, logit_rows = 0;
  int64_t stage = 0;  // of the step
  auto operator<=>(const StepShape&) const = default;
};

// The smallest bucket that holds n rows; n itself above the largest, where steps are not captured.
int64_t row_bucket(int64_t n);
inline constexpr int64_t kLargestBucket = 32;

class StepGraphs {
 public:
  explicit StepGraphs(size_t most) : most_(most) {}
  // Does what `record` puts on the stream. Errors: record's, and those of capturing (kLocal when memory is short).
  Result<void> run(const gpu::Stream& stream, const StepShape& shape, const std::function<Result<void>()>& record);
  size_t count() const;
  size_t bytes() const;  // device memory of the graphs kept

 private:
  struct Entry {
    gpu::Graph graph;
    bool captured = false;
    int64_t last_use = 0;
  };
  void make_room();

  size_t most_;
  int64_t clock_ = 0;
  std::map<StepShape, Entry> entries_;
};

}  // namespace dsf::serve::cuda
