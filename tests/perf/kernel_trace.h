#pragma once
// Kernel times of this process through CUPTI, loaded at run time: without libcupti, start() says why and the caller goes on without.
// One trace at a time.
#include <cstdint>
#include <string>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::perf {

struct KernelTime {
  std::string name;         // demangled, without arguments
  int64_t begin_ns, end_ns;
  int device;
};

Result<void> start_kernel_trace();
// The kernels since start, by begin. The device must be idle.
std::vector<KernelTime> stop_kernel_trace();

}  // namespace dsf::perf
