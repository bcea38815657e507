// Peer exchange: regions, how ranks find each other's, errors. The kernel is in peer_kernel.cu.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/comm/device_collective.h"
#include "dsf/gpu/cuda.h"
#include "peer_kernel.h"
#include "stream_wait.h"

namespace dsf::comm {
namespace {

using namespace peer;

// What a rank tells the others about its region.
struct Place {
  std::array<char, 40> boot{};  // of the host
  int64_t pid = 0;
  int32_t device = 0;
  int32_t fine = 0, shared = 0;  // fine: the region exists; shared: other processes may open it
  uint64_t address = 0;
  cudaIpcMemHandle_t handle{};
};

std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  if (std::FILE* f = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
    if (std::fread(id.data(), 1, id.size() - 1, f) == 0) id[0] = '?';
    std::fclose(f);
  }
  return id;
}

class Peer final : public DeviceCollective {
 public:
  Peer(int rank, int world, const DeviceCollectiveOptions& o) : rank_(rank), world_(world), options_(o) {}
  ~Peer() override {
    for (void* p : opened_) cudaIpcCloseMemHandle(p);
    cudaFree(region_);
    cudaFree(sequence_);
    cudaFreeHost(host_);
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::string name() const override { return "peer"; }

  Result<void> all_reduce_sum(void* values, int64_t n, Element element, const gpu::Stream& stream) override {
    const Op op = element == Element::kF32 ? Op::kSumF32 : Op::kSumBf16;
    return enqueue(op, values, values, static_cast<size_t>(n) * element_bytes(element), stream);
  }
  Result<void> all_gather(const void* own, void* all, size_t bytes, const gpu::Stream& stream) override {
    return enqueue(Op::kGather, own, all, bytes, stream);
  }

  Result<void> wait(const gpu::Stream& stream, uint64_t step) override {
    // The kernels keep the bound themselves; ours is for a device that does not run them.
    const auto done = wait_for_stream(stream, options_.timeout_us + 5'000'000, [&] { return false; });
    if (!done) return done;
    return fault_of(step);
  }

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (reason_.empty()) reason_ = reason;
    }
    __atomic_store_n(&host_->abort, 1u, __ATOMIC_RELEASE);
  }

  Result<void> allocate() {
    DSF_CUDA_TRY(cudaMalloc(&region_, region_bytes(world_)));
    DSF_CUDA_TRY(cudaMemset(region_, 0, region_bytes(world_)));
    DSF_CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(&sequence_), (kMaxBlocks + 1) * sizeof(uint32_t)));
    std::array<uint32_t, kMaxBlocks + 1> first{};
    first.fill(options_.first_sequence);
    first[kMaxBlocks] = 0;
    DSF_CUDA_TRY(cudaMemcpy(sequence_, first.data(), sizeof first, cudaMemcpyHostToDevice));
    DSF_CUDA_TRY(cudaHostAlloc(reinterpret_cast<void**>(&host_), sizeof(HostState),
                               cudaHostAllocMapped | cudaHostAllocPortable));
    std::memset(host_, 0, sizeof(HostState));
    HostState* seen = nullptr;
    DSF_CUDA_TRY(cudaHostGetDevicePointer(reinterpret_cast<void**>(&seen), host_, 0));
    DSF_CUDA_TRY(cudaDeviceSynchronize());  // zeros are there before anybody learns the address
    args_.sequence = sequence_;
    args_.host = seen;
    args_.flags_offset = inbox_bytes(world_);
    args_.small_offset = inbox_bytes(world_) + flags_bytes(world_);
    args_.rank = rank_;
    args_.world = world_;
    args_.timeout_ns = static_cast<uint64_t>(options_.timeout_us) * 1000;
    return {};
  }

  Result<Place> place() const {
    Place p;
    p.boot = boot_id();
    p.pid = ::getpid();
    DSF_CUDA_TRY(cudaGetDevice(&p.device));
    p.address = reinterpret_cast<uint64_t>(region_);
    p.shared = cudaIpcGetMemHandle(&p.handle, region_) == cudaSuccess ? 1 : 0;
    (void)cudaGetLastError();  // only a rank of another process needs the handle
    p.fine = 1;
    return p;
  }

  Result<void> reach(int rank, const Place& own, const Place& there) {
    const std::string subject = "rank " + std::to_string(rank);
    if (own.boot != there.boot)
      return fail(Code::kMissing, subject, "runs on another host: peer access ends at this one",
                  "use NCCL between hosts", "no_peer");
    if (rank == rank_) return at(rank, region_);
    if (own.pid != there.pid) {
      if (there.shared == 0)
        return fail(Code::kMissing, subject, "its device memory cannot be opened by other processes", "use NCCL",
                    "no_peer");
      void* p = nullptr;
      DSF_CUDA_TRY(cudaIpcOpenMemHandle(&p, there.handle, cudaIpcMemLazyEnablePeerAccess));
      opened_.push_back(p);
      return at(rank, p);
    }
    if (own.device != there.device) {
      int can = 0;
      DSF_CUDA_TRY(cudaDeviceCanAccessPeer(&can, own.device, there.device));
      if (can == 0)
        return fail(Code::kMissing, subject,
                    "its device " + std::to_string(there.device) + " cannot be reached from device " +
                        std::to_string(own.device),
                    "use NCCL", "no_peer");
      if (const cudaError_t e = cudaDeviceEnablePeerAccess(there.device, 0);
          e != cudaSuccess && e != cudaErrorPeerAccessAlreadyEnabled)
        DSF_CUDA_TRY(e);
      (void)cudaGetLastError();  // "already enabled" is no error here
    }
    return at(rank, reinterpret_cast<void*>(there.address));
  }

 private:
  Result<void> at(int rank, void* region) {
    args_.region[rank] = static_cast<std::byte*>(region);
    return {};
  }

  Result<void> enqueue(Op op, const void* in, void* out, size_t bytes, const gpu::Stream& stream) {
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kPack == 0; };
    if (bytes == 0 || bytes % kPack != 0 || !aligned(in) || !aligned(out))
      return fail(Code::kUsage, "peer exchange",
                  std::to_string(bytes) + " bytes: sizes and addresses must be multiples of 16");
    Args args = args_;
    const auto packs = static_cast<int64_t>(bytes / kPack);
    args.signature = (static_cast<uint32_t>(op) << 28) | (static_cast<uint32_t>(packs) & 0x0fffffffu);
    DSF_CUDA_TRY(launch(op, args, in, out, packs, gpu::cuda_stream(stream)));
    return {};
  }

  Result<void> fault_of(uint64_t step) {
    const auto fault = static_cast<Fault>(__atomic_load_n(&host_->fault, __ATOMIC_ACQUIRE));
    if (fault == Fault::kNone) return {};
    const std::string subject = "rank " + std::to_string(rank_) + ", step " + std::to_string(step);
    const std::string where =
        "exchange " + std::to_string(host_->sequence) + " with rank " + std::to_string(host_->peer);
    if (fault == Fault::kDivergence)
      return fail(Code::kRemote, subject,
                  where + ": the ranks call different operations (" + std::to_string(host_->signature) + ", " +
                      std::to_string(host_->seen_signature) + ")",
                  "all ranks must run the same plan", "divergence");
    if (fault == Fault::kTimeout)
      return fail(Code::kRemote, subject,
                  where + ": nothing came for " + std::to_string(options_.timeout_us / 1000) +
                      " ms, last seen exchange " + std::to_string(host_->seen_sequence),
                  "look at that rank's log", "timeout");
    const std::lock_guard lock(mutex_);
    return fail(Code::kRemote, subject, where + " was aborted: " + reason_, "", "aborted");
  }

  int rank_, world_;
  DeviceCollectiveOptions options_;
  void* region_ = nullptr;
  uint32_t* sequence_ = nullptr;
  HostState* host_ = nullptr;
  std::vector<void*> opened_;
  Args args_{};
  std::mutex mutex_;  // guards reason_
  std::string reason_;
};

Result<Place> prepare(Peer& peer) {
  DSF_OK(peer.allocate());
  return peer.place();
}

}  // namespace

Result<std::unique_ptr<DeviceCollective>> open_peer_collective(Communicator& bootstrap,
                                                               const DeviceCollectiveOptions& options) {
  const int world = bootstrap.world(), rank = bootstrap.rank();
  if (world > kMaxRanks)
    return fail(Code::kUsage, "peer exchange", "at most " + std::to_string(kMaxRanks) + " ranks", "use NCCL");
  auto peer = std::make_unique<Peer>(rank, world, options);
  // Every rank goes through both exchanges whatever happened to it, so that none is left waiting.
  Result<Place> own = prepare(*peer);
  std::vector<Place> places(static_cast<size_t>(world));
  const Place mine = own ? *own : Place{};
  DSF_OK(bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(places))));
  Result<void> reached = own ? Result<void>{} : Result<void>(fail(own.error()));
  for (int r = 0; r < world && reached; ++r)
    if (places[static_cast<size_t>(r)].fine != 0) reached = peer->reach(r, mine, places[static_cast<size_t>(r)]);
  std::vector<int32_t> fine(static_cast<size_t>(world));
  const int32_t mine_fine = reached ? 1 : 0;
  DSF_OK(bootstrap.all_gather(std::as_bytes(std::span(&mine_fine, 1)), std::as_writable_bytes(std::span(fine))));
  DSF_OK(reached);
  for (size_t r = 0; r < fine.size(); ++r)
    if (fine[r] == 0)
      return fail(Code::kMissing, "rank " + std::to_string(r), "has no peer access to the others", "use NCCL",
                  "no_peer");
  return std::unique_ptr<DeviceCollective>(std::move(peer));
}

}  // namespace dsf::comm
