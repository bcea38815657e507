// Looking inside a step: copies of what a launch left, for the hooks of Trace.
#include "tools/serve/backends/cuda/cuda_forward.h"

namespace dsf::serve::cuda {

Result<void> CudaForward::report(std::string_view what, int64_t index, const float* device, int64_t per_row) {
  if (!trace.values) return {};
  std::vector<float> host(static_cast<size_t>(n_ * per_row));
  DSF_OK(gpu::copy_to_host(stream_, host.data(), device, host.size() * sizeof(float)));
  DSF_OK(stream_.wait());
  trace.values(what, index, host, n_);
  return {};
}

Result<void> CudaForward::report_ids(std::string_view what, int64_t index, const int32_t* device, int64_t per_row) {
  if (!trace.ids) return {};
  std::vector<int32_t> host(static_cast<size_t>(n_ * per_row));
  DSF_OK(gpu::copy_to_host(stream_, host.data(), device, host.size() * sizeof(int32_t)));
  DSF_OK(stream_.wait());
  trace.ids(what, index, 0, host, n_);
  return {};
}

Result<void> CudaForward::report_enter(int64_t index) {
  std::vector<float> x(static_cast<size_t>(n_ * config_.hc_mult * config_.hidden_size)),
      pre(static_cast<size_t>(n_ * config_.hc_mult));
  DSF_OK(gpu::copy_to_host(stream_, x.data(), s_.x, x.size() * sizeof(float)));
  DSF_OK(gpu::copy_to_host(stream_, pre.data(), s_.pre, pre.size() * sizeof(float)));
  DSF_OK(stream_.wait());
  trace.enter(index, x, pre);
  DSF_OK(gpu::copy_to_device(stream_, s_.x, x.data(), x.size() * sizeof(float)));
  DSF_OK(gpu::copy_to_device(stream_, s_.pre, pre.data(), pre.size() * sizeof(float)));
  return stream_.wait();
}

}  // namespace dsf::serve::cuda
