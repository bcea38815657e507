// Tensor parallel on two devices: both ranks hold the same bits, and together they compute what one rank does but for the order of two sums.
#include <thread>

#include "device_array.h"
#include "dsf/comm/device_collective.h"
#include "dsf/made_checkpoint/folders.h"
#include "dsf/test/support.h"
#include "tools/serve/backends/cuda/cuda_engine.h"

using namespace dsf;
using namespace dsf::serve;

namespace {

namespace made = made_checkpoint;

constexpr int kRanks = 2;

cuda::CudaEngineOptions options(int device) {
  cuda::CudaEngineOptions o;
  o.model_dir = made::exl3_folder();
  o.engram_dir = made::native_folder();
  o.max_model_len = 256;
  o.max_step_tokens = 128;
  o.device = device;
  o.graphs = false;      // ranks of one process: instantiating a graph may wait for the other device, which waits for this one
  o.fake_quant = false;  // four-bit caches would turn the last bits of a sum into whole steps
  return o;
}

// A prompt in one step, then ten tokens one by one: logits of every position.
Result<std::vector<float>> answers(Engine& engine) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 70; ++i) ids.push_back((i * 37 + 11) % static_cast<int32_t>(engine.config().vocab_size));
  DSF_TRY(const SessionId session, engine.open());
  std::vector<float> out;
  for (size_t at = 0; at < ids.size(); at += at == 0 ? 60 : 1) {
    const StepItem item{.session = session, .tokens = std::span(ids).subspan(at, at == 0 ? 60 : 1), .want_all_logits = true};
    DSF_TRY(const StepOutput step, engine.step({&item, 1}));
    out.insert(out.end(), step.logits.begin(), step.logits.end());
  }
  return out;
}

Result<std::vector<float>> answers_of_rank(int rank, comm::Communicator& ranks) {
  DSF_OK(gpu::open(rank));
  DSF_TRY(const std::unique_ptr<comm::DeviceCollective> collective, comm::open_peer_collective(ranks));
  cuda::CudaEngineOptions o = options(rank);
  o.rank = rank, o.world = kRanks, o.collective = collective.get();
  DSF_TRY(const std::unique_ptr<cuda::CudaEngine> engine, cuda::CudaEngine::open(o));
  DSF_OK(ranks.barrier());
  return answers(*engine);
}

}  // namespace

TEST_CASE("two ranks on two devices agree with each other bit for bit and with one rank") {
  if (gpu::count() < kRanks) return test::skip("tensor parallel on devices", "fewer than two CUDA devices");
  if (!std::filesystem::exists(made::exl3_folder())) return test::skip("tensor parallel on devices", "the made checkpoint is not here");
  auto ranks = comm::in_process_group(kRanks);
  std::vector<Result<std::vector<float>>> got(kRanks, fail(Code::kBug, "rank", "did not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([&, rank] {
      got[static_cast<size_t>(rank)] = answers_of_rank(rank, *ranks[static_cast<size_t>(rank)]);
      if (!got[static_cast<size_t>(rank)]) ranks[static_cast<size_t>(rank)]->abort("failed");
    });
  for (std::thread& t : threads) t.join();
  for (const auto& r : got) REQUIRE_MESSAGE(r, r.error().line());
  CHECK(*got[0] == *got[1]);
  auto one = cuda::CudaEngine::open(options(0));
  REQUIRE_MESSAGE(one, one.error().line());
  const auto want = answers(**one);
  REQUIRE_MESSAGE(want, want.error().line());
  const double distance = test::relative_distance(*got[0], *want);
  MESSAGE("relative distance of two ranks' logits from one's: " << distance);
  CHECK(distance < 1e-3);
}
