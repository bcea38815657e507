#pragma once
// PackedLinears: by which EXL3 kernel a product is computed, and the workspace they share.
//
// Few rows take the decode kernels, many the tensor-core kernels; both give a row the same bits, so the choice is free and made by speed.
// Owns its device memory, allocated in create(); borrows nothing. Calls on one stream only.
#include <cstdint>
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"
#include "tools/serve/backends/cuda/device_model.h"

namespace dsf::serve::cuda {

// y [n_rows, y_stride] = the product of a linear with the inputs that begin at x_offset of each row.
struct LinearTask {
  const DeviceLinear* l = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0, x_offset = 0;
};

// Which linears of a layer are launched together: with the same input, or the groups of wo_a.
std::vector<std::vector<const DeviceLinear*>> launch_groups(const DeviceLayer& layer);

class PackedLinears {
 public:
  // What create() will allocate.
  static size_t bytes(const model::Config& config, const DeviceModel& model, const gpu::Facts& device, int64_t max_rows);
  // Errors: kLocal when memory is short.
  static Result<PackedLinears> create(const model::Config& config, const DeviceModel& model, const gpu::Facts& device, int64_t max_rows, const gpu::Stream& stream);

  // tasks: packed, of one input width, one launch group. x: [n_rows, x_stride].
  Result<void> run(const gpu::Stream& stream, const float* x, int64_t x_stride, std::span<const LinearTask> tasks, int64_t n_rows) const;
  // a: all but workspace and counters.
  Result<void> experts(const gpu::Stream& stream, ops::Exl3MoeArgs a, int64_t n_experts, int max_bits) const;

 private:
  gpu::Facts device_;
  gpu::DeviceBuffer workspace_, counters_;
};

}  // namespace dsf::serve::cuda
