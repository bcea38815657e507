// Times the CUDA engine at full size with random weights: milliseconds of a decode step, tokens per second of prefill, and the time line of a
// step, kernel by kernel.
//
//   engine_bench --model DIR [--device 0] [--experts 0] [--rows 1,2,4,8] [--context 1024,131072] [--prefill 8192] [--chunk 2048] [--steps 20]
//                [--timeline on|off] [--world 1]
// --world: ranks of a tensor parallel run, one process and device each, from --device on. DIR holds a config.json. --experts: routed experts of a layer (0: all). Contexts are claimed, not computed: the caches hold zeros. Exit 77
// without a device.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/comm/device_collective.h"
#include "dsf/comm/tcp.h"
#include "kernel_trace.h"
#include "tools/serve/backends/cuda/cuda_engine.h"

using namespace dsf;
using namespace dsf::serve;

namespace {

struct Options {
  std::string model;
  int64_t device = 0, experts = 0, prefill = 8192, chunk = 2048, steps = 20, world = 1;
  std::vector<int64_t> rows{1, 2, 4, 8}, context{1024, 131072};
  bool timeline = true;
};

[[noreturn]] void stop(const Error& error) {
  std::fprintf(stderr, "engine_bench: %s\n", error.line().c_str());
  std::exit(error.code == Code::kMissing && error.subject == "GPU" ? 77 : static_cast<int>(error.code));
}
template <class T>
T value(Result<T> r) {
  if (!r) stop(r.error());
  return std::move(*r);
}

std::vector<int64_t> list(const std::string& text) {
  std::vector<int64_t> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto n = parse_i64(text.substr(at, end - at));
    if (!n || *n < 1) stop({Code::kUsage, text, "is not a list of positive numbers", {}, {}});
    out.push_back(*n);
    at = end + 1;
  }
  return out;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], text = argv[i + 1];
    if (flag == "--model") o.model = text;
    else if (flag == "--rows") o.rows = list(text);
    else if (flag == "--context") o.context = list(text);
    else if (flag == "--timeline") o.timeline = text != "off";
    else if (const auto n = parse_i64(text); !n || *n < 0) stop({Code::kUsage, flag, "takes a number", {}, {}});
    else if (flag == "--device") o.device = *n;
    else if (flag == "--experts") o.experts = *n;
    else if (flag == "--prefill") o.prefill = *n;
    else if (flag == "--chunk") o.chunk = *n;
    else if (flag == "--steps") o.steps = *n;
    else if (flag == "--world") o.world = *n;
    else stop({Code::kUsage, flag, "is not an option", {}, {}});
  }
  if (o.model.empty()) stop({Code::kUsage, "--model", "is required", {}, {}});
  return o;
}

bool quiet = false;  // only rank 0 speaks
#define say(...) (quiet ? 0 : std::printf(__VA_ARGS__))

double ms_since(int64_t start_ns) { return static_cast<double>(monotonic_ns() - start_ns) * 1e-6; }

struct Decode {
  std::vector<SessionId> sessions;
  int32_t token = 7;
};

void decode_step(cuda::CudaEngine& engine, Decode& d) {
  std::vector<int32_t> tokens(d.sessions.size());
  std::vector<StepItem> items;
  for (size_t i = 0; i < d.sessions.size(); ++i) {
    d.token = static_cast<int32_t>((d.token * 1103515245LL + 12345) % engine.config().vocab_size);  // other experts every time
    if (d.token < 0) d.token = -d.token;
    tokens[i] = d.token;
    items.push_back({.session = d.sessions[i], .tokens = std::span(tokens).subspan(i, 1)});
  }
  value(engine.step(items));
}

Decode open_sessions(cuda::CudaEngine& engine, int64_t rows, int64_t context) {
  Decode d;
  for (int64_t i = 0; i < rows; ++i) {
    d.sessions.push_back(value(engine.open()));
    if (auto ok = engine.pretend(d.sessions.back(), context); !ok) stop(ok.error());
  }
  return d;
}
void close_sessions(cuda::CudaEngine& engine, const Decode& d) {
  for (const SessionId s : d.sessions) engine.close(s);
}

void time_decode(cuda::CudaEngine& engine, int64_t rows, int64_t context, int64_t steps) {
  Decode d = open_sessions(engine, rows, context);
  for (int i = 0; i < 4; ++i) decode_step(engine, d);
  std::vector<double> ms;
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t start = monotonic_ns();
    decode_step(engine, d);
    ms.push_back(ms_since(start));
  }
  std::sort(ms.begin(), ms.end());
  say("decode   %2lld rows at %7lld: median %8.3f ms  best %8.3f  worst %8.3f  (%.1f tok/s)\n", static_cast<long long>(rows), static_cast<long long>(context),
              ms[ms.size() / 2], ms.front(), ms.back(), 1e3 * static_cast<double>(rows) / ms[ms.size() / 2]);
  close_sessions(engine, d);
}

void prefill(cuda::CudaEngine& engine, int64_t tokens, int64_t chunk, const char* what) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 2654435761u) % static_cast<uint64_t>(engine.config().vocab_size));
  const SessionId s = value(engine.open());
  const int64_t start = monotonic_ns();
  for (int64_t at = 0; at < tokens; at += chunk) {
    const int64_t n = std::min(chunk, tokens - at);
    const StepItem item{.session = s, .tokens = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n)), .want_logits = at + n == tokens};
    value(engine.step({&item, 1}));
  }
  const double ms = ms_since(start);
  if (what != nullptr)
    say("%s %lld tokens in steps of %lld: %.1f ms, %.0f tok/s\n", what, static_cast<long long>(tokens), static_cast<long long>(chunk), ms, 1e3 * static_cast<double>(tokens) / ms);
  engine.close(s);
}

// Sums by kernel, largest first, and the time in which none ran.
void print_timeline(const std::vector<perf::KernelTime>& kernels, int64_t steps, const char* what) {
  if (kernels.empty()) return;
  struct Sum {
    int64_t ns = 0, count = 0;
  };
  std::map<std::string, Sum> sums;
  int64_t end = kernels.front().begin_ns, busy = 0;
  for (const perf::KernelTime& k : kernels) {
    Sum& s = sums[k.name];
    s.ns += k.end_ns - k.begin_ns, ++s.count;
    busy += std::max<int64_t>(0, k.end_ns - std::max(end, k.begin_ns));
    end = std::max(end, k.end_ns);
  }
  const int64_t span = end - kernels.front().begin_ns;
  std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  const double per = 1e-3 / static_cast<double>(steps), all = static_cast<double>(span);
  std::printf("time line of %s: %.1f us a step, of it %.1f us without a kernel, %zu kernels a step\n", what, all * per, static_cast<double>(span - busy) * per, kernels.size() / static_cast<size_t>(steps));
  for (const auto& [name, s] : order)
    if (static_cast<double>(s.ns) > 0.004 * all)
      std::printf("  %-44.44s %6.1f x %9.2f us = %9.1f us %5.1f %%\n", name.c_str(), static_cast<double>(s.count) / static_cast<double>(steps),
                  static_cast<double>(s.ns) / static_cast<double>(s.count) * 1e-3, static_cast<double>(s.ns) * per, 100 * static_cast<double>(s.ns) / all);
}

template <class F>
void trace(F&& work, int64_t steps, int device, const char* what) {
  if (quiet) return work();
  if (const auto started = perf::start_kernel_trace(); !started) {
    std::printf("no time line: %s\n", started.error().line().c_str());
    return;
  }
  work();
  auto kernels = perf::stop_kernel_trace();
  std::erase_if(kernels, [&](const perf::KernelTime& k) { return k.device != device; });
  print_timeline(kernels, steps, what);
}

void run_rank(const Options& o, int rank, comm::Communicator& ranks) {
  quiet = rank != 0;
  cuda::CudaEngineOptions eo;
  eo.model_dir = o.model;
  eo.device = static_cast<int>(o.device) + rank;
  eo.load_format = cuda::LoadFormat::kDummy;
  eo.dummy_experts = o.experts;
  eo.max_model_len = *std::max_element(o.context.begin(), o.context.end()) + o.prefill + 256;
  eo.max_step_tokens = o.chunk;
  eo.max_sessions = static_cast<int>(*std::max_element(o.rows.begin(), o.rows.end()));
  eo.on_plan = [](const cuda::CudaMemory& m) {
    say("memory: weights %s, caches %s, workspace %s, reserve %s; free %s\n", format_bytes(m.weights).c_str(), format_bytes(m.caches).c_str(),
        format_bytes(m.workspace).c_str(), format_bytes(m.reserve).c_str(), format_bytes(m.available).c_str());
  };
  value(gpu::open(eo.device));
  std::unique_ptr<comm::DeviceCollective> collective;
  if (o.world > 1) collective = value(comm::open_peer_collective(ranks));
  eo.rank = rank, eo.world = static_cast<int>(o.world), eo.collective = collective.get();
  const int64_t start = monotonic_ns();
  const auto engine = value(cuda::CudaEngine::open(eo));
  say("%lld layers, %lld experts, rank 0 of %lld, ready after %.1f s\n", static_cast<long long>(engine->config().num_hidden_layers),
      static_cast<long long>(engine->config().n_routed_experts), static_cast<long long>(o.world), ms_since(start) * 1e-3);
  if (const auto met = ranks.barrier(); !met) stop(met.error());
  for (const int64_t context : o.context)
    for (const int64_t rows : o.rows) time_decode(*engine, rows, context, o.steps);
  if (o.prefill > 0) {
    prefill(*engine, std::min(o.prefill, o.chunk), o.chunk, nullptr);
    prefill(*engine, o.prefill, o.chunk, "prefill ");
  }
  if (!o.timeline) return;
  for (const int64_t rows : {o.rows.front(), o.rows.back()}) {
    Decode d = open_sessions(*engine, rows, o.context.front());
    for (int i = 0; i < 4; ++i) decode_step(*engine, d);
    if (const auto met = ranks.barrier(); !met) stop(met.error());
    trace([&] { for (int i = 0; i < 5; ++i) decode_step(*engine, d); }, 5, eo.device, ("decode of " + std::to_string(rows) + " rows").c_str());
    close_sessions(*engine, d);
  }
  if (o.prefill > 0) trace([&] { prefill(*engine, o.chunk, o.chunk, nullptr); }, 1, eo.device, "one prefill step");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Options o = parse(argc, argv);
  // A process a rank, made before anything touches a device.
  int rank = 0;
  for (int r = 1; r < o.world && rank == 0; ++r)
    if (fork() == 0) rank = r;
  std::unique_ptr<comm::Communicator> ranks = comm::single_rank();
  if (o.world > 1)
    ranks = value(comm::join_tcp_group({.rank = rank, .world = static_cast<int>(o.world), .rendezvous = "127.0.0.1:29617", .version = "engine_bench",
                                        .join_timeout_us = 20'000'000, .timeout_us = 60'000'000, .silence_us = 20'000'000, .on_lost = {}}));
  run_rank(o, rank, *ranks);
  if (rank != 0) return 0;
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}
