#include "dsf/gpu/cuda.h"

#include <atomic>
#include <utility>

namespace dsf::gpu {
namespace {
cudaEvent_t event_of(void* h) { return static_cast<cudaEvent_t>(h); }
std::atomic<int64_t> allocations = 0;
}  // namespace

int count() {
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return n;
}

Result<Facts> open(int device) {
  if (count() == 0) return fail(Code::kMissing, "GPU", "no CUDA device or driver", "check nvidia-smi, or run with --backend cpu");
  DSF_CUDA_TRY(cudaSetDevice(device));
  cudaDeviceProp p{};
  DSF_CUDA_TRY(cudaGetDeviceProperties(&p, device));
  Facts f;
  f.name = p.name;
  f.arch = 10 * p.major + p.minor;
  f.n_sms = p.multiProcessorCount;
  f.total_bytes = p.totalGlobalMem;
  f.l2_bytes = static_cast<size_t>(p.l2CacheSize);
  f.smem_per_block = p.sharedMemPerBlockOptin;
  f.integrated = p.integrated != 0;
  DSF_CUDA_TRY(cudaDriverGetVersion(&f.driver));
  DSF_CUDA_TRY(cudaRuntimeGetVersion(&f.runtime));
  return f;
}

Result<size_t> free_bytes() {
  size_t free = 0, total = 0;
  DSF_CUDA_TRY(cudaMemGetInfo(&free, &total));
  return free;
}

Result<Stream> Stream::create() {
  cudaStream_t h = nullptr;
  DSF_CUDA_TRY(cudaStreamCreateWithFlags(&h, cudaStreamNonBlocking));
  Stream s;
  s.handle_ = h;
  return s;
}
Stream::Stream(Stream&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
Stream& Stream::operator=(Stream&& o) noexcept {
  std::swap(handle_, o.handle_);
  return *this;
}
Stream::~Stream() {
  if (handle_ != nullptr) (void)cudaStreamDestroy(cuda_stream(*this));
}
Result<void> Stream::wait() const {
  DSF_CUDA_TRY(cudaStreamSynchronize(cuda_stream(*this)));
  return {};
}
Result<void> Stream::after(const Event& e) const {
  DSF_CUDA_TRY(cudaStreamWaitEvent(cuda_stream(*this), event_of(e.handle()), 0));
  return {};
}

Result<Event> Event::create(bool timing) {
  cudaEvent_t h = nullptr;
  DSF_CUDA_TRY(cudaEventCreateWithFlags(&h, timing ? cudaEventDefault : cudaEventDisableTiming));
  Event e;
  e.handle_ = h;
  return e;
}
Event::Event(Event&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
Event& Event::operator=(Event&& o) noexcept {
  std::swap(handle_, o.handle_);
  return *this;
}
Event::~Event() {
  if (handle_ != nullptr) (void)cudaEventDestroy(event_of(handle_));
}
Result<void> Event::record(const Stream& s) const {
  DSF_CUDA_TRY(cudaEventRecord(event_of(handle_), cuda_stream(s)));
  return {};
}
Result<void> Event::wait() const {
  DSF_CUDA_TRY(cudaEventSynchronize(event_of(handle_)));
  return {};
}
Result<float> Event::us_since(const Event& start) const {
  float ms = 0;
  DSF_CUDA_TRY(cudaEventElapsedTime(&ms, event_of(start.handle()), event_of(handle_)));
  return ms * 1000.0f;
}

Result<Graph> Graph::capture(const Stream& s, const std::function<Result<void>()>& record) {
  DSF_TRY(const size_t before, free_bytes());
  DSF_CUDA_TRY(cudaStreamBeginCapture(cuda_stream(s), cudaStreamCaptureModeThreadLocal));
  Result<void> recorded = record();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(cuda_stream(s), &graph);
  if (!recorded) {
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return fail(std::move(recorded).error());
  }
  DSF_CUDA_TRY(ended);
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  DSF_CUDA_TRY(made);
  Graph g;
  g.exec_ = exec;
  DSF_CUDA_TRY(cudaGraphUpload(exec, cuda_stream(s)));
  DSF_TRY(const size_t after, free_bytes());
  g.bytes_ = before > after ? before - after : 0;
  return g;
}
Graph::Graph(Graph&& o) noexcept : exec_(std::exchange(o.exec_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
Graph& Graph::operator=(Graph&& o) noexcept {
  std::swap(exec_, o.exec_), std::swap(bytes_, o.bytes_);
  return *this;
}
Graph::~Graph() {
  if (exec_ != nullptr) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec_));
}
Result<void> Graph::launch(const Stream& s) const {
  DSF_CUDA_TRY(cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec_), cuda_stream(s)));
  return {};
}

namespace detail {
void release_device(void* p) { (void)cudaFree(p); }
void release_pinned(void* p) { (void)cudaFreeHost(p); }
}  // namespace detail

Result<DeviceBuffer> allocate(size_t bytes) {
  void* p = nullptr;
  ++allocations;
  if (bytes != 0) DSF_CUDA_TRY(cudaMalloc(&p, bytes));
  return DeviceBuffer(p, bytes);
}
Result<PinnedBuffer> allocate_pinned(size_t bytes) {
  void* p = nullptr;
  ++allocations;
  if (bytes != 0) DSF_CUDA_TRY(cudaHostAlloc(&p, bytes, cudaHostAllocDefault));
  return PinnedBuffer(p, bytes);
}
int64_t allocation_count() { return allocations; }
Result<void> copy_to_device(const Stream& s, void* device, const void* host, size_t bytes) {
  DSF_CUDA_TRY(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_stream(s)));
  return {};
}
Result<void> copy_to_host(const Stream& s, void* host, const void* device, size_t bytes) {
  DSF_CUDA_TRY(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_stream(s)));
  return {};
}
Result<void> fill(const Stream& s, void* device, int byte, size_t bytes) {
  DSF_CUDA_TRY(cudaMemsetAsync(device, byte, bytes, cuda_stream(s)));
  return {};
}

}  // namespace dsf::gpu
