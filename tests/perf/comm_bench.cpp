// Device collectives: checked bit for bit, then timed inside graphs, peer exchange against NCCL. Run by hand on a machine with GPUs:
//
//   comm_bench [--ranks N] [--quick | --times]        ranks as threads, rank r on device r modulo the devices there are
//   comm_bench --rank R --rendezvous HOST:PORT ...    one rank of N processes
//
// --quick: checks alone, smaller. --times: times alone.
//
// With fewer devices than ranks NCCL is left out (it wants a device each) and times say nothing about a link.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/comm/device_collective.h"
#include "dsf/comm/tcp.h"
#include "dsf/gpu/cuda.h"

using namespace dsf;
using comm::Communicator;
using comm::DeviceCollective;
using comm::Element;

namespace {

struct Setup {
  int ranks = 2, devices = 0;
  bool quick = false, times = false, lost = false;
  Communicator* process = nullptr;  // of this process's one rank; nullptr: every rank is a thread
  bool speaks() const { return process == nullptr || process->rank() == 0; }
};

float value(int rank, int64_t i, int round) {
  uint32_t h = static_cast<uint32_t>(i) * 2654435761u ^ static_cast<uint32_t>(rank * 40503 + round * 977 + 1);
  h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
  return (static_cast<float>(h & 0xffffff) / 8388608.0f - 1.0f) * 3.0f;
}

uint16_t bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float wide(uint16_t h) {
  const uint32_t u = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// The bytes a rank puts in, and those every rank must get.
std::vector<std::byte> input(int rank, int64_t n, Element e, int round) {
  std::vector<std::byte> out(static_cast<size_t>(n) * comm::element_bytes(e));
  for (int64_t i = 0; i < n; ++i) {
    const float f = value(rank, i, round);
    const uint16_t h = bf16(f);
    if (e == Element::kF32) std::memcpy(out.data() + i * 4, &f, 4);
    else std::memcpy(out.data() + i * 2, &h, 2);
  }
  return out;
}
std::vector<std::byte> expected(int world, int64_t n, Element e, int round) {
  std::vector<std::byte> out(static_cast<size_t>(n) * comm::element_bytes(e));
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int r = 0; r < world; ++r) {
      const float f = e == Element::kF32 ? value(r, i, round) : wide(bf16(value(r, i, round)));
      sum = r == 0 ? f : sum + f;
    }
    const uint16_t h = bf16(sum);
    if (e == Element::kF32) std::memcpy(out.data() + i * 4, &sum, 4);
    else std::memcpy(out.data() + i * 2, &h, 2);
  }
  return out;
}

// body on every rank, one thread each, on its device. False, with a line each, when one fails.
bool on_ranks(const Setup& setup, const std::function<Result<void>(Communicator&, const gpu::Stream&)>& body) {
  const auto run_one = [&](Communicator& own) -> Result<void> {
    DSF_OK(gpu::open(own.rank() % setup.devices));
    DSF_TRY(const gpu::Stream stream, gpu::Stream::create());
    return body(own, stream);
  };
  if (setup.process != nullptr) {
    const auto done = run_one(*setup.process);
    if (!done) std::printf("  rank %d: %s\n", setup.process->rank(), done.error().line().c_str());
    return done.has_value();
  }
  auto group = comm::in_process_group(setup.ranks, 30'000'000);
  std::vector<std::string> errors(static_cast<size_t>(setup.ranks));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < setup.ranks; ++r)
      threads.emplace_back([&, r] {
        if (const auto done = run_one(*group[static_cast<size_t>(r)]); !done) {
          errors[static_cast<size_t>(r)] = done.error().line();
          group[static_cast<size_t>(r)]->abort("rank " + std::to_string(r) + " failed");
        }
      });
  }
  bool fine = true;
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) std::printf("  rank %zu: %s\n", r, errors[r].c_str()), fine = false;
  return fine;
}

using Open = Result<std::unique_ptr<DeviceCollective>> (*)(Communicator&, const comm::DeviceCollectiveOptions&);

Result<void> same(const gpu::Stream& stream, DeviceCollective& c, const void* device, const std::vector<std::byte>& want, const std::string& what) {
  std::vector<std::byte> got(want.size());
  DSF_OK(c.wait(stream, 0));
  DSF_OK(gpu::copy_to_host(stream, got.data(), device, got.size()));
  DSF_OK(stream.wait());
  if (got != want) {
    const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
    return fail(Code::kNo, what, "differs from byte " + std::to_string(at) + " of " + std::to_string(got.size()));
  }
  return {};
}

Result<void> check_sums(Open open, const Setup& setup, Communicator& boot, const gpu::Stream& stream, uint32_t first_sequence) {
  comm::DeviceCollectiveOptions options;
  options.first_sequence = first_sequence;
  DSF_TRY(const auto c, open(boot, options));
  DSF_TRY(const gpu::DeviceBuffer values, gpu::allocate(8 << 20));
  const std::vector<int64_t> sizes = {8, 128, 1000, 5120, 6 * 5120, 64 * 5120 + 8, setup.quick ? 4096 : (1 << 20)};
  for (const Element e : {Element::kF32, Element::kBf16}) {
    for (const int64_t n : sizes) {
      for (int round = 0; round < 6; ++round) {  // both parities, and slots used again
        const auto mine = input(boot.rank(), n, e, round);
        DSF_OK(gpu::fill(stream, values.data(), 0xff, mine.size()));
        DSF_OK(gpu::copy_to_device(stream, values.data(), mine.data(), mine.size()));
        DSF_OK(c->all_reduce_sum(values.data(), n, e, stream));
        DSF_OK(same(stream, *c, values.data(), expected(boot.world(), n, e, round), "sum of " + std::to_string(n) + (e == Element::kF32 ? " f32" : " bf16")));
      }
    }
  }
  return boot.barrier();
}

Result<void> check_gather(Open open, const Setup&, Communicator& boot, const gpu::Stream& stream, uint32_t) {
  DSF_TRY(const auto c, open(boot, {}));
  for (const int64_t n : {4, 1532, 100'000}) {
    DSF_TRY(const gpu::DeviceBuffer own, gpu::allocate(static_cast<size_t>(n) * 4));
    DSF_TRY(const gpu::DeviceBuffer all, gpu::allocate(static_cast<size_t>(n * boot.world()) * 4));
    const auto mine = input(boot.rank(), n, Element::kF32, 3);
    DSF_OK(gpu::copy_to_device(stream, own.data(), mine.data(), mine.size()));
    DSF_OK(c->all_gather(own.data(), all.data(), mine.size(), stream));
    std::vector<std::byte> want;
    for (int r = 0; r < boot.world(); ++r) {
      const auto part = input(r, n, Element::kF32, 3);
      want.insert(want.end(), part.begin(), part.end());
    }
    DSF_OK(same(stream, *c, all.data(), want, "gather of " + std::to_string(n)));
  }
  return boot.barrier();
}

// A graph of eight mixed operations, replayed over changing inputs.
Result<void> check_graph(Open open, const Setup& setup, Communicator& boot, const gpu::Stream& stream, uint32_t) {
  constexpr int64_t kSizes[8] = {5120, 64, 5120 * 6, 5120, 16, 5120 * 2, 2048, 5120};
  DSF_TRY(const auto c, open(boot, {}));
  std::vector<gpu::DeviceBuffer> from, to;
  for (const int64_t n : kSizes) {
    DSF_TRY(gpu::DeviceBuffer a, gpu::allocate(static_cast<size_t>(n) * 4));
    DSF_TRY(gpu::DeviceBuffer b, gpu::allocate(static_cast<size_t>(n) * 4));
    from.push_back(std::move(a));
    to.push_back(std::move(b));
  }
  const auto record = [&]() -> Result<void> {
    for (size_t i = 0; i < 8; ++i) {
      DSF_CUDA_TRY(cudaMemcpyAsync(to[i].data(), from[i].data(), to[i].bytes(), cudaMemcpyDeviceToDevice, gpu::cuda_stream(stream)));
      DSF_OK(c->all_reduce_sum(to[i].data(), kSizes[i], Element::kF32, stream));
    }
    return {};
  };
  DSF_OK(record());  // what loads lazily loads before the capture
  DSF_OK(c->wait(stream, 0));
  DSF_OK(boot.barrier());
  DSF_TRY(const gpu::Graph graph, gpu::Graph::capture(stream, record));
  for (int replay = 0; replay < (setup.quick ? 50 : 2000); ++replay) {
    const bool look = replay % 50 == 0;
    for (size_t i = 0; look && i < 8; ++i) {
      const auto mine = input(boot.rank(), kSizes[i], Element::kF32, replay);
      DSF_OK(gpu::copy_to_device(stream, from[i].data(), mine.data(), mine.size()));
      DSF_OK(stream.wait());
    }
    DSF_OK(graph.launch(stream));
    for (size_t i = 0; look && i < 8; ++i) DSF_OK(same(stream, *c, to[i].data(), expected(boot.world(), kSizes[i], Element::kF32, replay), "graph replay " + std::to_string(replay)));
  }
  DSF_OK(c->wait(stream, 0));
  return boot.barrier();
}

// Rank 0 waits for a rank that does not come: by abort, or until its own bound.
Result<void> check_lost(Open open, const Setup&, Communicator& boot, const gpu::Stream& stream, bool abort) {
  comm::DeviceCollectiveOptions options;
  options.timeout_us = abort ? 20'000'000 : 300'000;
  DSF_TRY(const auto c, open(boot, options));
  DSF_TRY(const gpu::DeviceBuffer values, gpu::allocate(5120 * 4));
  DSF_OK(gpu::fill(stream, values.data(), 0, values.bytes()));
  DSF_OK(stream.wait());
  if (boot.rank() == 0) {
    int64_t aborted_at = 0;
    DSF_OK(c->all_reduce_sum(values.data(), 5120, Element::kF32, stream));
    std::jthread other([&] {
      if (!abort) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      aborted_at = monotonic_ns();
      c->abort("test");
    });
    const int64_t start = monotonic_ns();
    const auto done = c->wait(stream, 7);
    const int64_t end = monotonic_ns();
    other.join();
    const std::string want = abort ? "aborted" : "timeout";
    if (done) return fail(Code::kNo, "a lost rank", "was not noticed");
    if (done.error().cls != want) return fail(Code::kNo, "a lost rank", "gave " + done.error().line());
    std::printf("  %s after %.2f ms: %s\n", want.c_str(), static_cast<double>(end - (abort ? aborted_at : start)) * 1e-6, done.error().line().c_str());
    DSF_OK(c->all_reduce_sum(values.data(), 5120, Element::kF32, stream));  // poisoned: nothing happens
    if (c->wait(stream, 8)) return fail(Code::kNo, "the error", "did not stick");
  }
  return boot.barrier();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Microseconds an operation, the slowest rank's median over replays of a graph of 80.
Result<void> time_graph(Open open, Communicator& boot, const gpu::Stream& stream, size_t bytes, double* out, std::string* name) {
  DSF_TRY(const auto c, open(boot, {}));
  *name = c->name();
  constexpr size_t kOps = 80;
  const auto n = static_cast<int64_t>(bytes / 2);
  DSF_TRY(const gpu::DeviceBuffer values, gpu::allocate(bytes * kOps));
  const auto mine = input(boot.rank(), n * static_cast<int64_t>(kOps), Element::kBf16, 0);
  DSF_OK(gpu::copy_to_device(stream, values.data(), mine.data(), mine.size()));
  const auto record = [&]() -> Result<void> {
    for (size_t i = 0; i < kOps; ++i) DSF_OK(c->all_reduce_sum(values.as<std::byte>(i * bytes), n, Element::kBf16, stream));
    return {};
  };
  DSF_OK(record());
  DSF_OK(c->wait(stream, 0));
  DSF_OK(boot.barrier());
  DSF_TRY(const gpu::Graph graph, gpu::Graph::capture(stream, record));
  DSF_TRY(const gpu::Event start, gpu::Event::create(true));
  DSF_TRY(const gpu::Event end, gpu::Event::create(true));
  std::vector<double> us;
  for (int replay = 0; replay < 24; ++replay) {
    DSF_OK(boot.barrier());
    DSF_OK(graph.launch(stream));  // brings the ranks together
    DSF_OK(start.record(stream));
    DSF_OK(graph.launch(stream));
    DSF_OK(end.record(stream));
    DSF_OK(c->wait(stream, 0));
    DSF_TRY(const float t, end.us_since(start));
    if (replay >= 4) us.push_back(static_cast<double>(t) / static_cast<double>(kOps));
  }
  const double mid = median(us);
  std::vector<double> all(static_cast<size_t>(boot.world()));
  DSF_OK(boot.all_gather(std::as_bytes(std::span(&mid, 1)), std::as_writable_bytes(std::span(all))));
  if (boot.rank() == 0) *out = *std::max_element(all.begin(), all.end());
  return boot.barrier();
}

bool check_all(const char* name, Open open, const Setup& setup, bool peer) {
  bool fine = true;
  const auto part = [&](const char* what, const std::function<Result<void>(Communicator&, const gpu::Stream&)>& body) {
    const int64_t start = monotonic_ns();
    const bool ok = on_ranks(setup, body);
    if (setup.speaks() || !ok) std::printf("%s %s %s (%.2f s)\n", ok ? "ok  " : "FAIL", name, what, static_cast<double>(monotonic_ns() - start) * 1e-9);
    std::fflush(stdout);
    fine = fine && ok;
  };
  part("sums bit for bit in rank order", [&](Communicator& b, const gpu::Stream& s) { return check_sums(open, setup, b, s, 0); });
  if (peer) part("the same over the wrap of the sequence", [&](Communicator& b, const gpu::Stream& s) { return check_sums(open, setup, b, s, 0xfffffff8u); });
  part("gather", [&](Communicator& b, const gpu::Stream& s) { return check_gather(open, setup, b, s, 0); });
  part("graph replays over changing inputs", [&](Communicator& b, const gpu::Stream& s) { return check_graph(open, setup, b, s, 0); });
  if (!peer) return fine;  // what NCCL does about a lost rank is looked at with --lost, in a process that may not end by itself
  part("abort ends a wait", [&](Communicator& b, const gpu::Stream& s) { return check_lost(open, setup, b, s, true); });
  part("a wait has a bound", [&](Communicator& b, const gpu::Stream& s) { return check_lost(open, setup, b, s, false); });
  return fine;
}

// Rank 0 waits for a rank that does not come and is aborted; how long everything takes. Ends the process whatever NCCL does.
int look_at_lost_nccl(const Setup& setup) {
  const bool fine = on_ranks(setup, [&](Communicator& boot, const gpu::Stream& stream) -> Result<void> {
    DSF_TRY(auto c, comm::open_nccl_collective(boot, {}));
    DSF_TRY(gpu::DeviceBuffer values, gpu::allocate(5120 * 4));
    DSF_OK(gpu::fill(stream, values.data(), 0, values.bytes()));
    DSF_OK(c->all_reduce_sum(values.data(), 5120, Element::kF32, stream));  // both: connections exist
    DSF_OK(c->wait(stream, 0));
    DSF_OK(boot.barrier());
    if (boot.rank() != 0) std::this_thread::sleep_for(std::chrono::seconds(6));
    if (boot.rank() != 0) ::_exit(0);
    DSF_OK(c->all_reduce_sum(values.data(), 5120, Element::kF32, stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int64_t start = monotonic_ns();
    const auto ms = [&] { return static_cast<double>(monotonic_ns() - start) * 1e-6; };
    c->abort("test");
    std::printf("  abort returned after %.2f ms\n", ms());
    const auto waited = c->wait(stream, 7);
    std::printf("  wait returned after %.2f ms: %s\n", ms(), waited ? "no error" : waited.error().line().c_str());
    while (cudaStreamQuery(gpu::cuda_stream(stream)) == cudaErrorNotReady && ms() < 4000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::printf("  stream %s after %.2f ms\n", ms() < 4000 ? "idle" : "still busy", ms());
    std::fflush(stdout);
    ::_exit(0);
  });
  return fine ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Setup setup;
  comm::TcpOptions tcp;
  tcp.rank = -1;
  setup.devices = gpu::count();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) setup.ranks = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--quick") == 0) setup.quick = true;
    if (std::strcmp(argv[i], "--times") == 0) setup.times = true;
    if (std::strcmp(argv[i], "--lost") == 0) setup.lost = true;
    if (std::strcmp(argv[i], "--rank") == 0 && i + 1 < argc) tcp.rank = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--rendezvous") == 0 && i + 1 < argc) tcp.rendezvous = argv[++i];
  }
  if (setup.devices == 0) {
    std::printf("SKIP comm_bench: no CUDA device\n");
    return 77;
  }
  std::unique_ptr<Communicator> own;
  if (tcp.rank >= 0) {
    tcp.world = setup.ranks;
    tcp.join_timeout_us = 20'000'000;
    auto joined = comm::join_tcp_group(tcp);
    if (!joined) return std::printf("%s\n", joined.error().line().c_str()), 3;
    own = std::move(*joined);
    setup.process = own.get();
  }
  if (setup.speaks()) std::printf("%d ranks as %s on %d devices\n", setup.ranks, own ? "processes" : "threads", setup.devices);
  if (setup.lost) return look_at_lost_nccl(setup);
  const bool apart = setup.devices >= setup.ranks;
  bool fine = setup.times || check_all("peer", comm::open_peer_collective, setup, true);
  if (apart && !setup.times) fine = check_all("nccl", comm::open_nccl_collective, setup, false) && fine;
  if (setup.quick) return fine ? 0 : 1;

  if (setup.speaks()) std::printf("%10s %12s %12s   us an operation, bf16 all-reduce in a graph of 80\n", "bytes", "peer", apart ? "nccl" : "-");
  for (const size_t bytes : {2048, 10'240, 20'480, 61'440, 122'880, 163'840, 245'760, 1 << 20, 4 << 20, 32 << 20}) {
    double peer = 0, nccl = 0;
    std::string name;
    on_ranks(setup, [&](Communicator& b, const gpu::Stream& s) {
      std::string mine;
      return time_graph(comm::open_peer_collective, b, s, bytes, &peer, &mine);
    });
    if (apart) {
      std::vector<std::string> names(static_cast<size_t>(setup.ranks));
      on_ranks(setup, [&](Communicator& b, const gpu::Stream& s) { return time_graph(comm::open_nccl_collective, b, s, bytes, &nccl, &names[static_cast<size_t>(b.rank())]); });
      name = names.front();
    }
    if (setup.speaks()) std::printf("%10zu %12.2f %12.2f   %s\n", bytes, peer, nccl, name.c_str());
    std::fflush(stdout);
  }
  return fine ? 0 : 1;
}
