#pragma once
// A bounded wait for a stream, shared by the device collectives. Private to comm.
#include <functional>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"

namespace dsf::comm {

// Until the stream is idle. stop: looked at every 10 ms; true ends the wait. Spins for the first milliseconds, where
// decode steps end. Errors: kRemote "timeout" when the bound is over, kBug for a CUDA error. Without an error the
// stream is idle, or stop was true.
Result<void> wait_for_stream(const gpu::Stream& stream, int64_t timeout_us, const std::function<bool()>& stop);

}  // namespace dsf::comm
