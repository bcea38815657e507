#pragma once
// Launch with programmatic dependence: the kernel may start while the one in front of it drains, which hides its start. It must call
// wait_for_previous(), in every thread, before it reads or writes anything but constant data: then what it has seen or overwritten was complete,
// and so, one kernel after the other, was everything in front. Included by .cu files only.
#include <cuda_runtime.h>

#include "dsf/gpu/cuda.h"

namespace dsf::serve::ops {

template <class... Params, class... Args>
Result<void> launch_after(void (*kernel)(Params...), cudaStream_t stream, dim3 grid, int threads, size_t shared_bytes, Args&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  DSF_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
  return {};
}

// Lets the kernel behind start as soon as there is room beside this one.
__device__ inline void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Everything that the kernels in front have written is visible behind it.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Both, for a kernel without anything to do before.
__device__ inline void start_after_previous() {
  release_next();
  wait_for_previous();
}

}  // namespace dsf::serve::ops
