#include "tools/serve/cluster.h"

#include <poll.h>
#include <unistd.h>

#include <thread>

#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/cli/version.h"
#include "dsf/comm/tcp.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/serve/engine/lockstep.h"
#include "tools/serve/engine/weights.h"

namespace dsf::serve {
namespace {

constexpr auto kLastMoment = std::chrono::milliseconds(1000);

// From the monitor thread: whatever the engine waits for, the process is gone within the second.
void end_process(const Error& error) {
  cli::log(cli::Level::kError, "lost the other ranks", {{"error", error.line()}});
  std::thread([] {
    std::this_thread::sleep_for(kLastMoment);
    ::_exit(static_cast<int>(Code::kRemote));
  }).detach();
}

}  // namespace

Result<std::string> plan_digest(const std::filesystem::path& model_dir, int world) {
  DSF_TRY(const model::Config config, model::load_config(model_dir / "config.json"));
  DSF_TRY(const safetensors::Checkpoint checkpoint, safetensors::Checkpoint::open(model_dir));
  DSF_TRY(const model::Split split, model::Split::create(config, world, stored_form(checkpoint)));
  return split.digest(config);
}

Result<std::unique_ptr<comm::Communicator>> join_cluster(const ClusterPlan& plan, const Facts& facts) {
  const comm::Membership& m = plan.membership;
  cli::log(cli::Level::kInfo, "joining",
           {{"rank", std::to_string(m.rank)}, {"world_size", std::to_string(m.world)}, {"rendezvous", m.rendezvous}});
  comm::TcpOptions options;
  options.rank = m.rank;
  options.world = m.world;
  options.rendezvous = m.rendezvous;
  options.version = cli::version_line("dsf-serve");
  options.join_timeout_us = plan.join_timeout_us;
  options.on_lost = end_process;
  DSF_TRY(std::unique_ptr<comm::Communicator> comm, comm::join_tcp_group(std::move(options)));
  comm->enter({"start", 0, 30'000'000});
  DSF_OK(comm::agree(*comm, facts));
  return comm;
}

Result<void> all_loaded(comm::Communicator& comm, const ClusterPlan& plan) {
  comm.enter({"load", 0, plan.join_timeout_us});
  return comm.barrier();
}

Result<int> follow_cluster(Engine& engine, comm::Communicator& comm, const ClusterPlan& plan,
                           int64_t drain_timeout_us) {
  cli::log(cli::Level::kInfo, "following", {{"rank", std::to_string(comm.rank())}});
  // Rank 0 decides when to stop. After a signal here it gets its drain time; a second signal is the shell's.
  std::jthread watch([&](const std::stop_token& done) {
    int64_t stop_at = 0;
    while (!done.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!cli::stop_requested()) continue;
      const int64_t now = monotonic_ns();
      if (stop_at == 0) stop_at = now + drain_timeout_us * 1000;
      if (now > stop_at) return comm.abort("rank " + std::to_string(comm.rank()) + " was told to stop");
    }
  });
  DSF_OK(follow(engine, comm, {.step_timeout_us = plan.step_timeout_us}));
  cli::log(cli::Level::kInfo, "stopped", {{"rank", std::to_string(comm.rank())}});
  return 0;
}

}  // namespace dsf::serve
