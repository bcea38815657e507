#pragma once
// Launch with programmatic dependence: the kernel may start while the one in front of it drains; it must call wait_for_previous() before it
// reads or writes anything but constant data. Included by .cu files only.
#include <cuda_runtime.h>

#include "dsf/gpu/cuda.h"

namespace dsf::serve::ops::exl3 {

template <class Args>
Result<void> launch_after(void (*kernel)(Args), const gpu::Stream& s, int blocks, int threads, size_t shared_bytes, const Args& args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = gpu::cuda_stream(s);
  config.attrs = &attribute;
  config.numAttrs = 1;
  DSF_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, args));
  return {};
}

}  // namespace dsf::serve::ops::exl3
