// NCCL behind DeviceCollective. The library is opened by name on first use, so that every program starts without it.
// Communicators are non-blocking: a call may answer "in progress", and only then is there something to wait for.
// Source: cluster.md 1.3.
#include "dsf/comm/device_collective.h"
#ifdef DSF_HAVE_NCCL
#include <dlfcn.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/gpu/cuda.h"
#include "stream_wait.h"

namespace dsf::comm {
namespace {

struct Library {
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGetErrorString) text = nullptr;
};

Result<Library> load() {
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return fail(Code::kMissing, "libnccl.so.2", why != nullptr ? why : "cannot be loaded",
                "install NCCL 2, or put its folder on LD_LIBRARY_PATH", "nccl");
  }
  Library l;
  bool all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    all = all && function != nullptr;
  };
  find(l.version, "ncclGetVersion");
  find(l.unique_id, "ncclGetUniqueId");
  find(l.init, "ncclCommInitRankConfig");
  find(l.async_error, "ncclCommGetAsyncError");
  find(l.abort, "ncclCommAbort");
  find(l.finalize, "ncclCommFinalize");
  find(l.destroy, "ncclCommDestroy");
  find(l.all_reduce, "ncclAllReduce");
  find(l.all_gather, "ncclAllGather");
  find(l.text, "ncclGetErrorString");
  if (!all) return fail(Code::kMissing, "libnccl.so.2", "lacks functions of NCCL 2.14", "install a newer NCCL", "nccl");
  return l;
}

// Opened once; never closed, since its threads may outlive a communicator.
const Result<Library>& library() {
  static const Result<Library> loaded = load();
  return loaded;
}

// Connecting may take seconds, whatever a step may take; at the end nobody is waited for long.
constexpr int64_t kConnectUs = 120'000'000, kFarewellUs = 2'000'000;

class Nccl final : public DeviceCollective {
 public:
  Nccl(const Library& library, int rank, int world, const DeviceCollectiveOptions& o)
      : nccl_(library), rank_(rank), world_(world), options_(o) {}
  ~Nccl() override {
    if (comm_ == nullptr || aborted_) return;
    if (nccl_.finalize(comm_) == ncclInProgress) (void)settle("finalize", kFarewellUs);
    if (!aborted_) nccl_.destroy(comm_);
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::string name() const override {
    int v = 0;
    nccl_.version(&v);
    return "nccl " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
  }

  Result<void> connect(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return finish(nccl_.init(&comm_, world_, id, rank_, &config), "init", kConnectUs);
  }

  Result<void> all_reduce_sum(void* values, int64_t n, Element element, const gpu::Stream& stream) override {
    const ncclDataType_t type = element == Element::kF32 ? ncclFloat32 : ncclBfloat16;
    if (aborted_) return {};  // wait() says so
    return finish(
        nccl_.all_reduce(values, values, static_cast<size_t>(n), type, ncclSum, comm_, gpu::cuda_stream(stream)),
        "all-reduce");
  }
  Result<void> all_gather(const void* own, void* all, size_t bytes, const gpu::Stream& stream) override {
    if (aborted_) return {};
    return finish(nccl_.all_gather(own, all, bytes, ncclUint8, comm_, gpu::cuda_stream(stream)), "all-gather");
  }

  Result<void> wait(const gpu::Stream& stream, uint64_t step) override {
    auto done = wait_for_stream(stream, options_.timeout_us, [&] { return aborted_ || async() != ncclSuccess; });
    if (!done && done.error().cls != "timeout") return done;
    const std::string subject = "rank " + std::to_string(rank_) + ", step " + std::to_string(step);
    if (!done) {
      abort("timeout");
      return fail(Code::kRemote, subject,
                  "NCCL waited " + std::to_string(options_.timeout_us / 1000) + " ms for the other ranks",
                  "look at their logs", "timeout");
    }
    if (aborted_) return fail(aborted_error(subject));
    if (const ncclResult_t e = async(); e != ncclSuccess) {
      abort(nccl_.text(e));
      return fail(Code::kRemote, subject, std::string("NCCL: ") + nccl_.text(e), "look at the other ranks' logs",
                  "peer_lost");
    }
    return {};
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (aborted_.exchange(true)) return;
    reason_ = reason;
    // It may wait for kernels and peers: not here.
    if (comm_ != nullptr) std::thread([abort = nccl_.abort, comm = comm_] { abort(comm); }).detach();
  }

 private:
  ncclResult_t async() {
    const std::lock_guard lock(mutex_);  // abort() frees the communicator
    ncclResult_t e = ncclSuccess;
    if (aborted_) return e;
    return nccl_.async_error(comm_, &e) == ncclSuccess ? e : ncclInternalError;
  }
  Error aborted_error(const std::string& subject) {
    const std::lock_guard lock(mutex_);
    return Error{Code::kRemote, subject, "NCCL was aborted: " + reason_, "", "aborted"};
  }
  // What a call in progress ends with.
  Result<void> settle(const char* call, int64_t timeout_us) {
    const int64_t deadline = monotonic_ns() + timeout_us * 1000;
    while (!aborted_ && monotonic_ns() < deadline) {
      const ncclResult_t e = async();
      if (e != ncclInProgress) return finish(e, call, timeout_us);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    abort("timeout");
    return fail(Code::kRemote, "rank " + std::to_string(rank_),
                std::string("NCCL ") + call + " did not end in " + std::to_string(timeout_us / 1000) + " ms",
                "look at the other ranks' logs", "timeout");
  }
  Result<void> finish(ncclResult_t e, const char* call) { return finish(e, call, options_.timeout_us); }
  Result<void> finish(ncclResult_t e, const char* call, int64_t timeout_us) {
    if (e == ncclSuccess) return {};
    if (e == ncclInProgress) return settle(call, timeout_us);
    const bool remote = e == ncclRemoteError || e == ncclSystemError;
    return fail(remote ? Code::kRemote : Code::kBug, "rank " + std::to_string(rank_),
                std::string("NCCL ") + call + ": " + nccl_.text(e), "run with NCCL_DEBUG=WARN for its own words",
                "nccl");
  }

  const Library& nccl_;
  const int rank_, world_;
  const DeviceCollectiveOptions options_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // guards reason_ and the call of abort
  std::atomic<bool> aborted_ = false;
  std::string reason_;
};

}  // namespace

Result<std::unique_ptr<DeviceCollective>> open_nccl_collective(Communicator& bootstrap,
                                                               const DeviceCollectiveOptions& options) {
  struct Hello {
    ncclUniqueId id{};
    int32_t fine = 0;
  };
  const Result<Library>& nccl = library();
  Hello mine;
  mine.fine = nccl ? 1 : 0;
  if (nccl && bootstrap.rank() == 0 && nccl->unique_id(&mine.id) != ncclSuccess) mine.fine = 0;
  std::vector<Hello> hellos(static_cast<size_t>(bootstrap.world()));
  DSF_OK(bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(hellos))));
  if (!nccl) return fail(nccl.error());
  for (size_t r = 0; r < hellos.size(); ++r)
    if (hellos[r].fine == 0)
      return fail(Code::kMissing, "rank " + std::to_string(r), "has no NCCL", "install it there", "nccl");
  auto out = std::make_unique<Nccl>(*nccl, bootstrap.rank(), bootstrap.world(), options);
  DSF_OK(out->connect(hellos.front().id));
  return std::unique_ptr<DeviceCollective>(std::move(out));
}

}  // namespace dsf::comm

#else

namespace dsf::comm {
Result<std::unique_ptr<DeviceCollective>> open_nccl_collective(Communicator& /*bootstrap*/,
                                                               const DeviceCollectiveOptions& /*options*/) {
  return fail(Code::kMissing, "NCCL", "this build has none", "build with -DDSF_NCCL=ON", "nccl");
}
}  // namespace dsf::comm
#endif
