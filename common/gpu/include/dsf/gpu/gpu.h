#pragma once
// The device as the rest of the project sees it: streams, events, graphs, buffers and facts, without a CUDA header.
//
// Built without a toolkit every function that needs a device returns kMissing, so callers need no #ifdef. Each class owns its handle and
// is movable; a handle must not outlive the process's use of its device. A Stream is fed by one thread at a time; everything else is a
// value. The only host waits are Stream::wait() and Event::wait(). handle() is the cudaStream_t, cudaEvent_t or cudaGraphExec_t for .cu
// files. Errors: kMissing when there is no device or driver, kLocal when memory is short, kBug when a call fails that cannot fail.
// Source: conventions.md section 5.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "dsf/base/result.h"

namespace dsf::gpu {

struct Facts {
  std::string name;               // "NVIDIA H200"
  int arch = 0;                   // 90, 121
  int n_sms = 0;                  // read, never assumed: bins of one chip differ
  size_t total_bytes = 0;
  size_t l2_bytes = 0;
  size_t smem_per_block = 0;      // dynamic shared memory a block may ask for
  bool integrated = false;        // device and host share one memory: count each byte once
  int driver = 0, runtime = 0;    // 13000 is 13.0
};

// Number of devices; 0 without a toolkit, driver or device.
int count();
// Makes `device` current for the calling thread and reads its facts.
Result<Facts> open(int device);
// Free bytes of the current device. On unified memory this leaves out reclaimable page cache: use /proc/meminfo there.
Result<size_t> free_bytes();

class Event;

class Stream {
 public:
  static Result<Stream> create();
  Stream() = default;
  Stream(Stream&& o) noexcept;
  Stream& operator=(Stream&& o) noexcept;
  ~Stream();
  void* handle() const { return handle_; }
  Result<void> wait() const;
  // What is put on this stream from now on runs after `e`.
  Result<void> after(const Event& e) const;

 private:
  void* handle_ = nullptr;
};

class Event {
 public:
  static Result<Event> create(bool timing = false);
  Event() = default;
  Event(Event&& o) noexcept;
  Event& operator=(Event&& o) noexcept;
  ~Event();
  void* handle() const { return handle_; }
  Result<void> record(const Stream& s) const;
  Result<void> wait() const;
  // Microseconds from `start` to this; both must have been created with timing and have happened.
  Result<float> us_since(const Event& start) const;

 private:
  void* handle_ = nullptr;
};

// Work recorded once and replayed. Buffers named in it must outlive it.
class Graph {
 public:
  // Runs `record` with the stream in capture; its error ends the capture and is returned.
  static Result<Graph> capture(const Stream& s, const std::function<Result<void>()>& record);
  Graph() = default;
  Graph(Graph&& o) noexcept;
  Graph& operator=(Graph&& o) noexcept;
  ~Graph();
  Result<void> launch(const Stream& s) const;
  // Device memory that capture() took for it: the fall of free_bytes(), so 0 where the driver had room left from before.
  size_t bytes() const { return bytes_; }

 private:
  void* exec_ = nullptr;
  size_t bytes_ = 0;
};

namespace detail {
void release_device(void* p);
void release_pinned(void* p);
// One owner of bytes; Release says where they came from.
template <void (*Release)(void*)>
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  Buffer(Buffer&& o) noexcept : data_(o.data_), bytes_(o.bytes_) { o.data_ = nullptr, o.bytes_ = 0; }
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(data_, o.data_), std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) Release(data_);
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as(size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + byte_offset);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};
}  // namespace detail

// Memory of the current device, 256-byte aligned, not initialised.
using DeviceBuffer = detail::Buffer<detail::release_device>;
// Host memory that the device can copy from at full rate and, on unified memory, read in place.
using PinnedBuffer = detail::Buffer<detail::release_pinned>;
Result<DeviceBuffer> allocate(size_t bytes);
Result<PinnedBuffer> allocate_pinned(size_t bytes);
// Calls of the two above that this process has made: a step after warm-up must not change it.
int64_t allocation_count();

// Asynchronous copies on `s`; host memory should be pinned, otherwise the call may block.
Result<void> copy_to_device(const Stream& s, void* device, const void* host, size_t bytes);
Result<void> copy_to_host(const Stream& s, void* host, const void* device, size_t bytes);
Result<void> fill(const Stream& s, void* device, int byte, size_t bytes);

}  // namespace dsf::gpu
