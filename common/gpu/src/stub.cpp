// Without a CUDA toolkit: the same names, every one of them answering that there is no device.
#include "dsf/gpu/gpu.h"

namespace dsf::gpu {
namespace {
Unexpected absent() {
  return fail(Code::kMissing, "GPU", "this build has no CUDA", "build with -DDSF_CUDA=ON, or run with --backend cpu");
}
}  // namespace

int count() { return 0; }
Result<Facts> open(int) { return absent(); }
Result<size_t> free_bytes() { return absent(); }

Result<Stream> Stream::create() { return absent(); }
Stream::Stream(Stream&&) noexcept {}
Stream& Stream::operator=(Stream&&) noexcept { return *this; }
Stream::~Stream() = default;
Result<void> Stream::wait() const { return absent(); }
Result<void> Stream::after(const Event&) const { return absent(); }

Result<Event> Event::create(bool) { return absent(); }
Event::Event(Event&&) noexcept {}
Event& Event::operator=(Event&&) noexcept { return *this; }
Event::~Event() = default;
Result<void> Event::record(const Stream&) const { return absent(); }
Result<void> Event::wait() const { return absent(); }
Result<float> Event::us_since(const Event&) const { return absent(); }

Result<Graph> Graph::capture(const Stream&, const std::function<Result<void>()>&) { return absent(); }
Graph::Graph(Graph&&) noexcept {}
Graph& Graph::operator=(Graph&&) noexcept { return *this; }
Graph::~Graph() = default;
Result<void> Graph::launch(const Stream&) const { return absent(); }

namespace detail {
void release_device(void*) {}
void release_pinned(void*) {}
}  // namespace detail

Result<DeviceBuffer> allocate(size_t) { return absent(); }
Result<PinnedBuffer> allocate_pinned(size_t) { return absent(); }
int64_t allocation_count() { return 0; }
Result<void> copy_to_device(const Stream&, void*, const void*, size_t) { return absent(); }
Result<void> copy_to_host(const Stream&, void*, const void*, size_t) { return absent(); }
Result<void> fill(const Stream&, void*, int, size_t) { return absent(); }

}  // namespace dsf::gpu
