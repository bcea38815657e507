#include "stream_wait.h"

#include <chrono>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/gpu/cuda.h"

namespace dsf::comm {

Result<void> wait_for_stream(const gpu::Stream& stream, int64_t timeout_us, const std::function<bool()>& stop) {
  constexpr int64_t kSpinNs = 20'000'000, kStopEveryNs = 10'000'000;
  const int64_t start = monotonic_ns();
  int64_t looked = start;
  while (true) {
    const cudaError_t state = cudaStreamQuery(gpu::cuda_stream(stream));
    if (state == cudaSuccess) return {};
    if (state != cudaErrorNotReady) DSF_CUDA_TRY(state);
    const int64_t now = monotonic_ns();
    if (now - looked > kStopEveryNs) {
      if (stop()) return {};
      looked = now;
    }
    if (now - start > timeout_us * 1000)
      return fail(Code::kRemote, "device", "did not finish a step in " + std::to_string(timeout_us / 1000) + " ms",
                  "look at the other ranks' logs", "timeout");
    if (now - start > kSpinNs) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace dsf::comm
