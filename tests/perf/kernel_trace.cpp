#include "kernel_trace.h"

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace dsf::perf {
namespace {

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
};
Cupti cupti;
std::mutex mutex;
std::vector<KernelTime> kernels;

template <class F>
bool find(void* library, const char* name, F& to) {
  to = reinterpret_cast<F>(dlsym(library, name));
  return to != nullptr;
}

std::string plain_name(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  constexpr std::string_view kNobody = "(anonymous namespace)::";
  for (size_t at = name.find(kNobody); at != std::string::npos; at = name.find(kNobody)) name.erase(at, kNobody.size());
  name = name.substr(0, name.find('('));
  const size_t args = name.find('<');
  const size_t colon = name.substr(0, args).rfind("::");
  if (colon != std::string::npos) name = name.substr(colon + 2);
  return name.starts_with("void ") ? name.substr(5) : name;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = size_t{8} << 20;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cupti.next(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* k = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    kernels.push_back({plain_name(k->name), static_cast<int64_t>(k->start), static_cast<int64_t>(k->end), static_cast<int>(k->deviceId)});
  }
  std::free(buffer);
}

}  // namespace

Result<void> start_kernel_trace() {
  void* library = dlopen("libcupti.so.13", RTLD_NOW);
  if (library == nullptr) library = dlopen("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", RTLD_NOW);
  if (library == nullptr) return fail(Code::kMissing, "libcupti.so.13", "cannot be loaded: " + std::string(dlerror()));
  if (!find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) || !find(library, "cuptiActivityEnable", cupti.enable) ||
      !find(library, "cuptiActivityDisable", cupti.disable) || !find(library, "cuptiActivityFlushAll", cupti.flush) || !find(library, "cuptiActivityGetNextRecord", cupti.next))
    return fail(Code::kMissing, "libcupti.so.13", "lacks a function");
  if (cupti.register_callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS || cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS)
    return fail(Code::kMissing, "CUPTI", "refused to trace kernels");
  return {};
}

std::vector<KernelTime> stop_kernel_trace() {
  cupti.flush(1);
  cupti.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  const std::lock_guard lock(mutex);
  std::sort(kernels.begin(), kernels.end(), [](const KernelTime& a, const KernelTime& b) { return a.begin_ns < b.begin_ns; });
  return std::move(kernels);
}

}  // namespace dsf::perf
