#pragma once
// Collectives on device memory, enqueued on a stream: what the CUDA engine of one rank asks of the others.
//
// Each rank owns one DeviceCollective and feeds it from one thread and one stream at a time; abort() may come from any
// thread. All ranks enqueue the same operations in the same order. Enqueueing allocates nothing and waits for nothing,
// so it may be captured in a graph; what changes between replays lives in device memory. Sums are formed in rank order
// on every rank (NCCL with more than two ranks: in an order of its own, the same on every rank), so all ranks hold the
// same bits. The first fault sticks: later operations do nothing, and wait() says what happened. Graphs that hold
// operations must be destroyed before the collective, memory after it.
//
// Errors: kUsage for sizes that are no multiple of 16 bytes, kRemote with cls "timeout", "divergence", "peer_lost" or
// "aborted", kMissing without a device, a library or a way between the devices, kBug for a failed CUDA call. Source:
// cluster.md 1.2, 1.3; h200.md.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dsf/base/result.h"
#include "dsf/comm/collective.h"
#include "dsf/gpu/gpu.h"

namespace dsf::comm {

enum class Element { kF32, kBf16 };
constexpr size_t element_bytes(Element e) { return e == Element::kF32 ? 4 : 2; }

class DeviceCollective {
 public:
  virtual ~DeviceCollective() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual std::string name() const = 0;  // "peer", "nccl 2.28.3"

  // values: [n] on the device, replaced by the sum over the ranks; f32 accumulation, one rounding for kBf16.
  virtual Result<void> all_reduce_sum(void* values, int64_t n, Element element, const gpu::Stream& stream) = 0;
  // own: bytes of this rank; all: [world * bytes], rank 0 first. own may be its place in all.
  virtual Result<void> all_gather(const void* own, void* all, size_t bytes, const gpu::Stream& stream) = 0;

  // Waits for everything on the stream. step names the step in errors.
  virtual Result<void> wait(const gpu::Stream& stream, uint64_t step) = 0;
  // Ends the waits of this rank's operations, soon and for ever. Never blocks for long.
  virtual void abort(const std::string& reason) = 0;
};

struct DeviceCollectiveOptions {
  int64_t timeout_us = 20'000'000;  // of one wait for the other ranks
  uint32_t first_sequence = 0;      // of peer exchanges, the same on every rank: for tests of the counter's wrap
};

// One-shot exchange between devices of one host: every block writes its share into the other ranks' memory, raises a
// flag there, waits for theirs and adds. For devices of one process (peer access) and of several (CUDA IPC); the ranks
// may also share one device. Works on the calling thread's current device. bootstrap is used here alone. Errors:
// kMissing when a rank is on another host or its memory cannot be reached; all ranks get one.
Result<std::unique_ptr<DeviceCollective>> open_peer_collective(Communicator& bootstrap,
                                                               const DeviceCollectiveOptions& options = {});

// NCCL, loaded on first use from libnccl.so.2. The communicator's id goes over bootstrap.
Result<std::unique_ptr<DeviceCollective>> open_nccl_collective(Communicator& bootstrap,
                                                               const DeviceCollectiveOptions& options = {});

}  // namespace dsf::comm
