#include "tools/serve/backends/registry/registry.h"

#include "dsf/base/numeric.h"
#include "tools/serve/engine/cpu_engine.h"

#ifdef DSF_HAVE_CUDA
#include <algorithm>
#include <cstdio>
#include <thread>

#include "tools/serve/backends/cuda/cuda_engine.h"
#endif

namespace dsf::serve {
namespace {

Result<std::unique_ptr<Engine>> open_cpu(const EngineRequest& r) {
  if (r.dummy) return fail(Code::kUsage, "--load-format dummy", "needs --backend cuda", "give a checkpoint to the CPU backend");
  CpuEngineOptions o;
  o.model_dir = r.model_dir;
  o.engram_dir = r.engram_dir;
  o.max_model_len = r.max_model_len;
  o.max_step_tokens = r.max_step_tokens;
  o.max_sessions = r.max_sessions;
  o.threads = r.threads;
  o.fake_quant = r.fake_quant;
  o.draft = r.draft;
  return open_cpu_engine(std::move(o));
}

#ifdef DSF_HAVE_CUDA

std::string with_unit(double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f %s", value, unit);
  return text;
}

Result<std::unique_ptr<Engine>> open_cuda(const EngineRequest& r) {
  cuda::CudaEngineOptions o;
  o.model_dir = r.model_dir;
  o.engram_dir = r.engram_dir;
  o.max_model_len = r.max_model_len;
  o.max_step_tokens = r.max_step_tokens;
  o.max_sessions = r.max_sessions;
  o.device = r.device;
  o.fake_quant = r.fake_quant;
  o.graphs = r.graphs;
  o.load_format = r.dummy ? cuda::LoadFormat::kDummy : cuda::LoadFormat::kCheckpoint;
  o.dummy_experts = r.dummy_experts;
  o.load_threads = r.threads > 0 ? r.threads : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  if (r.note)
    o.on_plan = [&r](const cuda::CudaMemory& m) {
      r.note("memory plan", {{"weights", format_bytes(m.weights)}, {"caches", format_bytes(m.caches)}, {"workspace", format_bytes(m.workspace)},
                             {"reserve", format_bytes(m.reserve)}, {"total", format_bytes(m.total())}, {"free", format_bytes(m.available)}});
    };
  DSF_TRY(std::unique_ptr<cuda::CudaEngine> engine, cuda::CudaEngine::open(std::move(o)));
  const cuda::LoadReport& report = engine->load_report();
  if (r.note && report.bytes != 0)
    r.note("weights loaded", {{"bytes", format_bytes(report.bytes)}, {"time", with_unit(report.seconds, "s")},
                              {"rate", with_unit(static_cast<double>(report.bytes) / 1e9 / std::max(report.seconds, 1e-9), "GB/s")}});
  return engine;
}

#else

Result<std::unique_ptr<Engine>> open_cuda(const EngineRequest&) {
  return fail(Code::kMissing, "--backend cuda", "this dsf-serve was built without CUDA", "build it where nvcc is on PATH, or use --backend cpu", "backend");
}

#endif

}  // namespace

std::vector<std::string> backend_names() { return {"cpu", "cuda"}; }

Result<std::unique_ptr<Engine>> open_engine(const EngineRequest& request) {
  return request.backend == "cuda" ? open_cuda(request) : open_cpu(request);
}

}  // namespace dsf::serve
