#pragma once
// For .cu files and src/cuda.cpp alone: CUDA errors as values. DSF_CUDA_TRY(expr) returns an Error that holds the call's text, the
// device and CUDA's name for it; DSF_CUDA_CHECK(expr) aborts, for destructors and tests.
#include <cuda_runtime_api.h>

#include <string>

#include "dsf/base/check.h"
#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"

namespace dsf::gpu {

inline Error cuda_error(cudaError_t e, const char* call) {
  int device = -1;
  cudaGetDevice(&device);
  const bool missing = e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver || e == cudaErrorInvalidDevice;
  const bool memory = e == cudaErrorMemoryAllocation;
  return Error{missing  ? Code::kMissing
               : memory ? Code::kLocal
                        : Code::kBug,
               "device " + std::to_string(device),
               std::string(call) + ": " + cudaGetErrorName(e) + ": " + cudaGetErrorString(e),
               missing  ? "check nvidia-smi, or run with --backend cpu"
               : memory ? "lower --ctx or free device memory"
                        : "",
               "cuda"};
}

inline cudaStream_t cuda_stream(const Stream& s) { return static_cast<cudaStream_t>(s.handle()); }

}  // namespace dsf::gpu

#define DSF_CUDA_TRY(expr)                                                                            \
  do {                                                                                                \
    if (cudaError_t dsf_e_ = (expr); dsf_e_ != cudaSuccess) {                                         \
      (void)cudaGetLastError();                                                                       \
      return ::dsf::fail(::dsf::gpu::cuda_error(dsf_e_, #expr));                                      \
    }                                                                                                 \
  } while (false)
#define DSF_CUDA_CHECK(expr) DSF_CHECK((expr) == cudaSuccess, "CUDA call failed")
